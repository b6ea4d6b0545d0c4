"""Stamps of rows: whether a pack, or a lesson of an agent, is still what somebody vouched for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from agentcore_site.errors import Conflict
from experiences.library.guards import MAX_WORDS
from experiences.library.stamps import (
    PackSource,
    Refused,
    experience_check,
    experience_stamp,
    pack_check,
    pack_stamp,
)
from experiences.models import Agent, Experience, PromptPack


class Refusal(NamedTuple):
    """A lesson that is left out, and why."""

    experience: Experience
    reason: str


@dataclass(frozen=True)
class Checked:
    """Lessons whose stamp fits, in their order, and those that were left out. Walked through, it is the former."""

    rows: list[Experience] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)

    def __iter__(self) -> Iterator[Experience]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


def pack_fault(pack: PromptPack) -> str:
    """Why a pack may not be used; "" if it may."""
    try:
        pack_check(pack.name, pack.stamp, pack.system, pack.injections, sources_of(pack))
    except Refused as error:
        return f"The prompt pack {error}"
    return ""


def pack_verify(pack: PromptPack) -> PromptPack:
    """Raises:
    Conflict: the pack bears no stamp, or was altered; it is named."""
    if fault := pack_fault(pack):
        raise Conflict(f"{fault} Load it again, or save it in the console to vouch for it.")
    return pack


def sources_of(pack: PromptPack) -> tuple[PackSource, ...]:
    return tuple(PackSource.of(one) for one in pack.sources)


def stamp_of_agent(agent: Agent) -> str:
    """The stamp of what stands before an agent's lessons: its pack's, else the one of its own system prompt.

    Raises:
        Conflict: its pack was altered.
    """
    if agent.prompt_pack is None:
        return pack_stamp(agent.system_prompt)
    return pack_verify(agent.prompt_pack).stamp


def max_words_of(agent: Agent, otherwise: int | None = None) -> int:
    """How many words a lesson of this agent may have: as its pack says, else ``otherwise``, else 32."""
    return agent.prompt_pack.max_words if agent.prompt_pack is not None else otherwise or MAX_WORDS


def stamped(experience: Experience, pack: str) -> str:
    """The stamp that the lesson should bear under the pack with that stamp."""
    return experience_stamp(pack, experience.handle, experience.version, experience.domain, experience.summary)


def verify_stamp(experience: Experience) -> bool:
    """Whether the lesson's text is the one that was learned or vouched for, under the prompt that its agent has now."""
    return not stamp_fault(experience)


def stamp_fault(experience: Experience) -> str:
    """Why a lesson is told to nobody; "" if its stamp fits."""
    return stamp_faults([experience]).get(experience.pk, "")


def stamp_faults(experiences: Iterable[Experience]) -> dict[UUID, str]:
    """By id, what is wrong with those whose stamp does not fit. Each agent's prompt is looked at once."""
    prompts: dict[UUID, tuple[str, str]] = {}
    faults: dict[UUID, str] = {}
    for one in experiences:
        if one.agent_id not in prompts:
            prompts[one.agent_id] = _prompt(one.agent)
        stamp, fault = prompts[one.agent_id]
        if fault := fault or _fault(one, stamp):
            faults[one.pk] = fault
    return faults


def checked(experiences: Iterable[Experience]) -> Checked:
    """The lessons that fit, and the others with what is wrong."""
    rows = list(experiences)
    faults = stamp_faults(rows)
    refused = [Refusal(one, faults[one.pk]) for one in rows if one.pk in faults]
    return Checked([one for one in rows if one.pk not in faults], refused)


def _prompt(agent: Agent) -> tuple[str, str]:
    """The stamp of an agent's prompt, or why it has none."""
    pack = agent.prompt_pack
    if pack is None:
        return pack_stamp(agent.system_prompt), ""
    return pack.stamp, pack_fault(pack)


def _fault(experience: Experience, pack: str) -> str:
    try:
        experience_check(
            experience.stamp, pack, experience.handle, experience.version, experience.domain, experience.summary
        )
    except Refused as error:
        return f"{error.offender}: {error.reason}."
    return ""
