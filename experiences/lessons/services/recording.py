"""Lessons as a training iteration writes them.

The agent's row is taken first, so that two writers of one agent take turns; readers are not held up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from django.db import transaction
from django.utils import timezone

from agentcore_site.jobs.models import Job
from agentcore_site.lib.errors import Invalid, Missing
from agentcore_site.lib.storable import unstorable
from experiences.learning.lessons.stamps import StampRefused
from experiences.learning.lessons.states import LessonUpdate, named, states_check, summary_fault
from experiences.lessons.selectors import by_person
from experiences.lessons.services.review_events import review_ask
from experiences.lessons.stamps import max_words_of, stamp_of_lessons, stamped
from experiences.models import Agent, Experience, ExperienceChange, ExperienceStatus
from experiences.privacy import redact

TEXTS: Final = ("summary", "why", "domain")
FIGURES: Final = (
    "weight", "effect", "effect_error", "rollouts", "tokens", "ground_truth", "relative_rank", "epoch",
)  # fmt: skip
ORIGINS: Final = ("task", "group", "taught_by", "parents", "tool_stats", "kind")
ADDED: Final = "added"
MOVED_TO: Final = {
    ExperienceStatus.ACTIVE: "activated",
    ExperienceStatus.PRUNED: "pruned",
    ExperienceStatus.QUARANTINED: "quarantined",
    ExperienceStatus.PROPOSED: "restored",
}


@dataclass(frozen=True)
class Synced:
    """Result of a write. ``held`` are handles that a person changed meanwhile: the person's change stays."""

    added: int = 0
    updated: int = 0
    moved: int = 0
    measured: int = 0
    unchanged: int = 0
    held: tuple[str, ...] = ()


@transaction.atomic
def experiences_sync(
    *,
    job: Job,
    agent: Agent,
    states: Sequence[LessonUpdate],
    by: str,
    max_words: int | None = None,
    acting: Agent | None = None,
) -> Synced:
    """Writes what an iteration knows of its lessons: new ones, other texts, statuses and figures; a handful of queries.

    Called in the transaction of the iteration, which the job's lease fences. Texts are redacted and stamped here. The
    same states again write nothing. Where a person changed a lesson since the job was made, the person's word holds.
    ``max_words`` is the job's own limit for new texts; a pack's counts before it, and texts that are kept stay.
    ``acting`` is the agent with the prompt that the job was launched with, for which its lessons hold; None: with the
    one that it has now.

    Raises:
        Invalid: a state can't be kept; it is named by its place and handle, and nothing is written.
        Conflict: the prompt pack was altered.
        Missing: the job is not of the agent's organisation.
    """
    if job.organization_id != agent.organization_id:
        raise Missing("There is no such job.")
    agent = agent_lock(agent)
    acting = acting or agent
    pack = stamp_of_lessons(acting)
    clean = states_clean(states)
    asked = Experience.objects.select_for_update(no_key=True).filter(
        agent=agent, handle__in=[update.handle for update in clean]
    )
    rows = {row.handle: row for row in asked.order_by("handle")}
    kept = {one.handle for one in clean if one.handle in rows and rows[one.handle].summary == one.summary}
    _check_words(states, max_words_of(acting, max_words), kept)
    held = _held(agent, job)
    fresh = [update for update in clean if update.handle not in rows]
    known = [(rows[update.handle], update) for update in clean if update.handle in rows and update.handle not in held]
    rows_add(fresh, agent, pack, by=by, job=job)
    counts = _change(known, pack, by=by, job=job)
    return replace(counts, added=len(fresh), held=tuple(update.handle for update in clean if update.handle in held))


# -- what may be written -----------------------------------------------------------------------------------------------


def agent_lock(agent: Agent) -> Agent:
    """The present agent, locked against other writers of its lessons until the transaction ends."""
    return Agent.objects.select_for_update(of=("self",), no_key=True).select_related("prompt_pack").get(pk=agent.pk)


def states_clean(states: Sequence[LessonUpdate]) -> list[LessonUpdate]:
    """The states without personal data. Checked before, so that a message names what was sent, and after.

    Raises:
        Invalid: one can't be kept; it is named by its place and handle.
    """
    try:
        states_check(states)
        clean = [_redacted(state) for state in states]
        states_check(clean)
    except StampRefused as error:
        raise Invalid(f"Nothing was written: {error}", fields={error.offender: error.reason}) from error
    for place, one in enumerate(clean):
        if why := unstorable([one.handle, *(getattr(one, name) for name in (*TEXTS, *ORIGINS[:2])), *one.tool_stats]):
            raise Invalid(f"Nothing was written: {named(place, one)}: {why}.", fields={named(place, one): why})
    return clean


def _check_words(states: Sequence[LessonUpdate], limit: int, kept: Collection[str] = ()) -> None:
    """Counts the words of texts as they were sent: a placeholder may have more than the secret that it replaces.

    Raises:
        Invalid: a text has more than ``limit``; it is named by its place and handle.
    """
    for place, one in enumerate(states):
        if one.handle not in kept and (fault := summary_fault(one.summary, limit)):
            where = named(place, one)
            raise Invalid(f"Nothing was written: {where}: {fault}.", fields={where: fault})


def _redacted(state: LessonUpdate) -> LessonUpdate:
    summary, why = redact(state.summary.strip()), redact(state.why.strip())
    return replace(state, summary=summary, why=why, task=redact(state.task)[:200])


def _held(agent: Agent, job: Job) -> set[str]:
    """Handles of the lessons that a person changed since the job was made: its own idea of them is older."""
    lines = ExperienceChange.objects.filter(by_person(), experience__agent=agent, at__gte=job.created_at)
    return set(lines.exclude(action=ADDED).values_list("experience__handle", flat=True))


# -- writing -----------------------------------------------------------------------------------------------------------


def rows_add(
    states: Iterable[LessonUpdate], agent: Agent, pack: str, *, by: str, job: Job | None, action: str = ADDED
) -> None:
    """Writes new lessons, stamped under the prompt with the stamp ``pack``, and the first line of each history."""
    rows = [_row(state, agent, pack, job) for state in states]
    Experience.objects.bulk_create(rows)
    if held := sum(row.status == ExperienceStatus.QUARANTINED for row in rows):
        review_ask(agent, held, "lesson", owner=job.created_by if job else None)
    ExperienceChange.objects.bulk_create(
        ExperienceChange(
            experience=row, version=row.version, action=action, after=row.summary, why=row.why, by=by[:150], job=job
        )
        for row in rows
    )


def _row(state: LessonUpdate, agent: Agent, pack: str, job: Job | None) -> Experience:
    row = Experience(
        organization_id=agent.organization_id,
        agent=agent,
        job=job,
        handle=state.handle,
        status=state.status,
        version=state.version,
        stamp=stamped(state, pack),
    )
    for name in (*TEXTS, *FIGURES, *ORIGINS):
        setattr(row, name, _value(state, name))
    return row


def _value(state: LessonUpdate, name: str) -> Any:
    """A state's value as its column holds it."""
    value = getattr(state, name)
    if name == "tool_stats":
        return [dict(one) for one in value]
    return list(value) if isinstance(value, tuple) else value


def _change(pairs: Sequence[tuple[Experience, LessonUpdate]], pack: str, *, by: str, job: Job) -> Synced:
    lines: list[ExperienceChange] = []
    changed: list[Experience] = []
    names: set[str] = set()
    texts = moves = 0
    for row, state in pairs:
        mine = _lines(row, state, by=by, job=job)
        texts += any(line.action in ("updated", "merged") for line in mine)
        moves += any(line.action not in ("updated", "merged") for line in mine)
        if moved := _apply(row, state, pack):
            changed.append(row)
            names |= moved
            lines += mine
    if changed:
        Experience.objects.bulk_update(changed, sorted(names))
        ExperienceChange.objects.bulk_create(lines)
    logged = {line.experience_id for line in lines}
    return Synced(
        updated=texts,
        moved=moves,
        measured=sum(row.pk not in logged for row in changed),
        unchanged=len(pairs) - len(changed),
    )


def _lines(row: Experience, state: LessonUpdate, *, by: str, job: Job) -> list[ExperienceChange]:
    """The lines of history that lead from the row to the state; none where only figures moved."""
    common = {"experience": row, "version": state.version, "why": state.why, "by": by[:150], "job": job}
    lines = []
    if row.summary != state.summary or row.version != state.version:
        action = "merged" if set(state.parents) - set(row.parents) else "updated"
        lines.append(ExperienceChange(action=action, before=row.summary, after=state.summary, **common))
    if row.status != state.status:
        action = _moved(row.status, state.status)
        lines.append(ExperienceChange(action=action, before=row.status, after=state.status, **common))
    return lines


def _moved(before: str, after: str) -> str:
    """Name of a change of status: an active lesson that is tried again is "proposed", not "restored"."""
    if before == ExperienceStatus.ACTIVE and after == ExperienceStatus.PROPOSED:
        return "proposed"
    return MOVED_TO[ExperienceStatus(after)]


def _apply(row: Experience, state: LessonUpdate, pack: str) -> set[str]:
    """Puts the state into the row; the columns that this changed.

    The job vouches for its own text: one that was altered in the database meanwhile is put right. A text that stayed
    keeps its stamp too, so that another prompt in the middle of a job is not vouched for by the way.
    """
    values = {name: _value(state, name) for name in (*TEXTS, *FIGURES, *ORIGINS)}
    values |= {"status": state.status, "version": state.version}
    if any(getattr(row, name) != values[name] for name in ("summary", "version", "domain")):
        values["stamp"] = stamped(state, pack)
    values["taught_by"] = [str(one) for one in values["taught_by"]]
    moved = {
        name: value
        for name, value in values.items()
        if value != ([str(one) for one in row.taught_by] if name == "taught_by" else getattr(row, name))
    }
    for name, value in moved.items():
        setattr(row, name, value)
    if not moved:
        return set()
    row.updated_at = timezone.now()
    return {*moved, "updated_at"}
