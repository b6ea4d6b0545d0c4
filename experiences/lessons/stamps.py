"""Stamps of rows: whether a pack, or a lesson of an agent, is still the text that was stamped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from agentcore_site.lib.errors import Conflict
from experiences.learning.lessons.guards import MAX_WORDS
from experiences.learning.lessons.stamps import (
    PackSource,
    StampRefused,
    experience_check,
    experience_stamp,
    pack_check,
    pack_stamp,
)
from experiences.learning.lessons.states import LessonUpdate
from experiences.lessons.job_prompt import domain_packs
from experiences.models import Agent, Experience, PromptPack


class LessonRefusal(NamedTuple):
    """A lesson that is left out, and why."""

    experience: Experience
    reason: str


class Stamp(NamedTuple):
    """Under which prompt a lesson's stamp fits: a pack, or the agent's system prompt (None). ``fault``: why it fits
    under none."""

    pack: PromptPack | None = None
    fault: str = ""


@dataclass(frozen=True)
class Checked:
    """Lessons whose stamp fits, in their order, and those that were left out. Walked through, it is the former."""

    rows: list[Experience] = field(default_factory=list)
    refused: list[LessonRefusal] = field(default_factory=list)

    def __iter__(self) -> Iterator[Experience]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


def pack_fault(pack: PromptPack) -> str:
    """Why a pack may not be used; "" if it may."""
    try:
        pack_check(pack.name, pack.stamp, pack.system, pack.injections, sources_of(pack))
    except StampRefused as error:
        return f"The prompt pack {error}"
    return ""


def pack_verify(pack: PromptPack) -> PromptPack:
    """Raises:
    Conflict: the pack bears no stamp, or was altered; it is named."""
    if fault := pack_fault(pack):
        raise Conflict(f"{fault} Load it again, or save it in the console to vouch for it.")
    return pack


def sources_of(pack: PromptPack) -> tuple[PackSource, ...]:
    return tuple(PackSource.of(source) for source in pack.sources)


def stamp_of_agent(agent: Agent) -> str:
    """The stamp of the prompt before an agent's lessons: its pack's, else the one of its own system prompt.

    Raises:
        Conflict: its pack was altered.
    """
    if agent.prompt_pack is None:
        return pack_stamp(agent.system_prompt)
    return pack_verify(agent.prompt_pack).stamp


def stamp_of_lessons(acting: Agent) -> str:
    """The stamp of the prompt for which the lessons hold that a job learns now, whose agent acts by the text that its
    pack had at the launch: that text; or the one that the pack has now, where who changed it said that lessons of the
    former hold for it too.

    Raises:
        Conflict: the text was altered.
    """
    stamp = stamp_of_agent(acting)
    if acting.prompt_pack is None:
        return stamp
    now = PromptPack.objects.filter(pk=acting.prompt_pack.pk, earlier_stamps__contains=[stamp]).first()
    return stamp if now is None or pack_fault(now) else now.stamp


def max_words_of(agent: Agent, otherwise: int | None = None) -> int:
    """Maximum number of words of a lesson of this agent: its pack's, else ``otherwise``, else 32."""
    return agent.prompt_pack.max_words if agent.prompt_pack is not None else otherwise or MAX_WORDS


def stamped(experience: Experience | LessonUpdate, pack: str) -> str:
    """The stamp that the lesson should bear under the pack with that stamp."""
    return experience_stamp(pack, experience.handle, experience.version, experience.domain, experience.summary)


def stamp_fault(experience: Experience) -> str:
    """The reason why a lesson enters no context; "" if its stamp fits."""
    return stamp_faults([experience]).get(experience.pk, "")


def stamp_faults(experiences: Iterable[Experience]) -> dict[UUID, str]:
    """By id, what is wrong with those whose stamp does not fit."""
    return {pk: stamp.fault for pk, stamp in stamps(experiences).items() if stamp.fault}


def stamps(experiences: Iterable[Experience]) -> dict[UUID, Stamp]:
    """By id, for which prompt of its agent each lesson holds. Each agent's prompts are looked at once."""
    prompts: dict[UUID, list[_Prompt]] = {}
    of_domains: dict[UUID, list[_Prompt]] = {}
    found = {}
    for experience in experiences:
        if experience.agent_id not in prompts:
            prompts[experience.agent_id] = [
                _own_prompt(experience.agent),
                *_domain_prompts(experience.agent, of_domains),
            ]
        found[experience.pk] = _stamp(experience, prompts[experience.agent_id])
    return found


def checked(experiences: Iterable[Experience]) -> Checked:
    """The lessons that fit, and the others with what is wrong."""
    rows = list(experiences)
    faults = stamp_faults(rows)
    refused = [LessonRefusal(row, faults[row.pk]) for row in rows if row.pk in faults]
    return Checked([row for row in rows if row.pk not in faults], refused)


class _Prompt(NamedTuple):
    """A prompt under which an agent may act. ``fault``: why it may not be used."""

    pack: PromptPack | None
    stamp: str
    fault: str


def _own_prompt(agent: Agent) -> _Prompt:
    pack = agent.prompt_pack
    return _of_pack(pack) if pack is not None else _Prompt(None, pack_stamp(agent.system_prompt), "")


def _domain_prompts(agent: Agent, known: dict[UUID, list[_Prompt]]) -> list[_Prompt]:
    """The packs that jobs of this agent may choose by domain; read once for each organisation."""
    if not agent.pack_by_domain:
        return []
    if agent.organization_id not in known:
        known[agent.organization_id] = [_of_pack(pack) for pack in domain_packs(agent.organization_id)]
    return known[agent.organization_id]


def _of_pack(pack: PromptPack) -> _Prompt:
    return _Prompt(pack, pack.stamp, pack_fault(pack))


def _stamp(experience: Experience, prompts: list[_Prompt]) -> Stamp:
    """The first prompt that fits; what is wrong under the agent's own one where none does."""
    faults = []
    for pack, stamp, fault in prompts:
        if not (fault := fault or _fault(experience, stamp)):
            return Stamp(pack)
        faults.append(fault)
    return Stamp(fault=faults[0])


def _fault(experience: Experience, pack: str) -> str:
    try:
        experience_check(
            experience.stamp, pack, experience.handle, experience.version, experience.domain, experience.summary
        )
    except StampRefused as error:
        return f"{error.offender}: {error.reason}."
    return ""
