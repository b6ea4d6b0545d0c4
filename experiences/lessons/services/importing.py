"""Whole batches of lessons that others stamped (from another agent with the same prompt, another site, or a file), and
texts for which no person here vouches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from django.db import transaction
from django.db.models import Q

from agentcore_site.audit.services import record
from agentcore_site.lib.errors import Conflict, Invalid, TooLarge
from agentcore_site.lib.storable import storable, unstorable
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from experiences.learning.lessons.library import line_tokens, new_handle
from experiences.learning.lessons.prompt_injection import suspicion
from experiences.learning.lessons.states import LessonUpdate, named, summary_fault
from experiences.lessons.job_prompt import with_pack
from experiences.lessons.provenance import acting_functions
from experiences.lessons.services.recording import agent_lock, rows_add, states_clean
from experiences.lessons.stamps import max_words_of, stamp_of_agent, stamps
from experiences.models import Agent, AgentRuntime, Experience, ExperienceStatus, PromptPack
from experiences.privacy import redact

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


@dataclass(frozen=True)
class ProposedText:
    """A text of others as it would become a lesson. ``known``: the agent has it already, in any status.
    ``left_out`` is the reason why it can't become one, ``suspicion`` what looks like an attempt to steer a model; both
    are "" otherwise."""

    handle: str
    text: str
    known: bool = False
    left_out: str = ""
    suspicion: str = ""

    @property
    def is_new(self) -> bool:
        return not self.known and not self.left_out


def texts_proposed(agent: Agent, texts: Sequence[str]) -> list[ProposedText]:
    """Texts of others as they would become lessons of this agent, each once; nothing is written.

    Raises:
        TooLarge: more than 1,000 texts.
    """
    if len(texts) > MAX_BATCH:
        raise TooLarge(f"{len(texts):,} texts; at most {MAX_BATCH:,} are taken at once.")
    clean = {new_handle("of others", storable(text)): text for text in (redact(one.strip()) for one in texts)}
    same = Q(handle__in=clean) | Q(summary__in=[text for text in clean.values() if not unstorable(text)])
    rows = Experience.objects.filter(same, agent=agent).values_list("handle", "summary")
    there = {value for row in rows for value in row}
    most, functions = max_words_of(agent), acting_functions(agent)
    found = []
    for handle, text in clean.items():
        fault = unstorable(text) or summary_fault(text, most)
        known = bool({handle, text} & there)
        found.append(ProposedText(handle, text, known, fault or "", "" if fault else suspicion(text, functions)))
    return found


@transaction.atomic
def record_texts(
    actor: Actor, texts: Sequence[str], *, agent: Agent, source: str, origin: Mapping[str, str]
) -> list[ProposedText]:
    """Puts texts of others into quarantine as lessons of an agent: no rollout sees one before a person approves it, and
    nothing that was measured elsewhere counts. ``source`` is the reason on each of them; ``origin`` goes to the audit
    log. Texts that the agent has already stay as they are, so that the same ones can be sent again.

    Raises:
        Missing, Forbidden: the actor may not.
        TooLarge: more than 1,000 texts.
        Conflict: the agent is archived, reads no lessons, or its prompt pack was altered.
    """
    require(actor, "agent.edit", agent.organization_id)
    agent = agent_lock(agent)
    if agent.archived_at is not None:
        raise Conflict(f"{agent.name} is archived.")
    if agent.runtime == AgentRuntime.ACTION:
        raise Conflict(f"{agent.name} chooses actions and reads no lessons. Choose an agent of a language model.")
    stamp = stamp_of_agent(agent)
    found = texts_proposed(agent, texts)
    fresh = [
        LessonUpdate(
            one.handle,
            one.text,
            why=f"{one.suspicion}; {source}" if one.suspicion else source,
            status=ExperienceStatus.QUARANTINED.value,
            tokens=line_tokens(one.text),
        )
        for one in found
        if one.is_new
    ]
    if fresh:
        rows_add(states_clean(fresh), agent, stamp, by=Actor.of(actor).name, job=None, action=IMPORTED)
        after = {**origin, "handles": [update.handle for update in fresh]}
        record(actor, "experiences.imported", agent, after=after)
    return found


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
