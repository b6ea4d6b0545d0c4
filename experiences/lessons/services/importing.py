"""Whole batches of lessons that others stamped: from another agent with the same prompt, another site, or a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from django.db import transaction

from agentcore_site.audit.services import record
from agentcore_site.lib.errors import Invalid, TooLarge
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from experiences.learning.lessons.library import line_tokens
from experiences.learning.lessons.prompt_injection import suspicion
from experiences.learning.lessons.states import LessonUpdate, named, summary_fault
from experiences.lessons.job_prompt import with_pack
from experiences.lessons.provenance import acting_functions
from experiences.lessons.services.recording import agent_lock, rows_add, states_clean
from experiences.lessons.stamps import max_words_of, stamp_of_agent, stamps
from experiences.models import Agent, Experience, ExperienceStatus, PromptPack

MAX_BATCH: Final = 1_000
IMPORTED: Final = "imported"


@dataclass(frozen=True)
class Imported:
    """Result of a batch. ``differing``: handles by which the agent has another lesson, which stays. ``quarantined``:
    handles whose text looks like an attempt to steer a model; a person reviews them."""

    added: int = 0
    unchanged: int = 0
    differing: tuple[str, ...] = ()
    quarantined: tuple[str, ...] = ()


@transaction.atomic
def record_batch(actor: Actor, records: Sequence[LessonUpdate], *, agent: Agent) -> Imported:
    """Writes lessons that others vouch for by their stamps; all of them or none.

    A stamp fits where the agent acts by the prompt under which the lesson was learned: its own, or a pack that its jobs
    choose by domain. Lessons that the agent has already are left as they are, so that a batch can be sent again.

    Raises:
        Missing, Forbidden: the actor may not.
        TooLarge: more than 1,000 lessons.
        Invalid: a record is unstamped, its stamp fits no prompt of the agent, or its text is too long; the message
            names it by its place and handle.
        Conflict: the agent's prompt pack was altered.
    """
    require(actor, "agent.edit", agent.organization_id)
    if len(records) > MAX_BATCH:
        raise TooLarge(f"{len(records):,} lessons; at most {MAX_BATCH:,} are taken at once. Split the batch.")
    agent = agent_lock(agent)
    stamp_of_agent(agent)
    functions = acting_functions(agent)
    states = [_guarded(update, functions) for update in states_clean(records)]
    packs = _packs(records, agent)
    there = Experience.objects.filter(agent=agent, handle__in=[state.handle for state in states])
    known = dict(there.values_list("handle", "summary"))
    fresh = [state for state in states if state.handle not in known]
    for pack in dict.fromkeys(packs.values()):
        mine = [one for one in fresh if packs[one.handle] == pack]
        stamp = stamp_of_agent(with_pack(agent, pack))
        rows_add(mine, agent, stamp, by=Actor.of(actor).name, job=None, action=IMPORTED)
    done = Imported(
        added=len(fresh),
        unchanged=sum(known.get(state.handle) == state.summary for state in states),
        differing=tuple(state.handle for state in states if known.get(state.handle, state.summary) != state.summary),
        quarantined=tuple(update.handle for update in fresh if update.status == ExperienceStatus.QUARANTINED),
    )
    record(actor, "experiences.imported", agent, after={"handles": [update.handle for update in fresh]})
    return done


def _guarded(state: LessonUpdate, functions: frozenset[str]) -> LessonUpdate:
    """The lesson as it is stored: counts its context tokens, and quarantines text that looks like an injection."""
    held = suspicion(state.summary, functions)
    status = ExperienceStatus.QUARANTINED.value if held else state.status
    return replace(state, tokens=line_tokens(state.summary), status=status, why=state.why or held)


def _packs(records: Sequence[LessonUpdate], agent: Agent) -> dict[str, PromptPack | None]:
    """By handle, under which prompt each lesson's stamp fits: a pack, or the agent's system prompt (None)."""
    rows = [
        Experience(
            agent=agent,
            handle=update.handle,
            version=update.version,
            domain=update.domain,
            summary=update.summary,
            stamp=update.stamp,
        )
        for update in records
    ]
    found = stamps(rows)
    for place, (row, one) in enumerate(zip(rows, records, strict=True)):
        pack, fault = found[row.pk]
        too_long = summary_fault(one.summary, max_words_of(with_pack(agent, pack)))
        if reason := too_long or fault.removeprefix(f"{one.handle}: ").rstrip("."):
            where = named(place, one)
            raise Invalid(f"Nothing was written: {where}: {reason}.", fields={where: reason})
    return {row.handle: found[row.pk].pack for row in rows}
