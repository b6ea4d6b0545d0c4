"""The prompt before the queries of a job: the pack of the domain that its data have, or the agent's own; and
its text, which a job keeps as it was at the launch."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.db.models import QuerySet

from agentcore_site.lib.errors import Conflict
from agentcore_site.lib.word_erasure import erase_words
from experiences.learning.lessons.stamps import PackSource, pack_stamp
from experiences.models import Agent, AgentRuntime, PromptPack

# Parts of a pack that a job stores: prompt texts, stamp, and settings for lessons.
OF_PACK: Final = ("name", "domain", "system", "injections", "sources", "stamp", "experience_slots", "max_words")


@dataclass(frozen=True, slots=True)
class ChosenPrompt:
    """``pack`` was chosen by the domain of the data; None: the agent's own prompt. ``why`` is a part of a sentence."""

    pack: PromptPack | None
    why: str

    def of(self, agent: Agent) -> dict[str, Any] | None:
        """As JSON values, with the agent's own pack where none was chosen by domain; None of an agent that chooses
        actions, which reads no prompt."""
        if agent.runtime == AgentRuntime.ACTION:
            return None
        used = self.pack or agent.prompt_pack
        return {
            "pack_id": None if used is None else str(used.pk),
            "pack": None if used is None else used.name,
            "stamp": pack_stamp(agent.system_prompt) if used is None else used.stamp,
            "by_domain": self.pack is not None,
            "why": self.why,
        }


def prompt_for(agent: Agent, domain: str) -> ChosenPrompt:
    """The prompt of a job of this agent whose data are about ``domain``, a word that packs carry too, in any case.

    Raises:
        Conflict: several packs are for that domain; they are named.
    """
    if agent.runtime == AgentRuntime.ACTION:
        return ChosenPrompt(None, "")
    if not agent.pack_by_domain:
        return ChosenPrompt(None, "the agent's own")
    if not domain:
        return ChosenPrompt(None, "the agent's own, since the data name no domain")
    packs = list(domain_packs(agent.organization_id).filter(domain__iexact=domain)[:3])
    if len(packs) > 1:
        names = " and ".join(pack.name for pack in packs[:2])
        raise Conflict(
            f"More than one prompt pack is for the domain {domain!r}: {names}. Archive one, or change its domain.",
            fields={"data": f"{names} are both for {domain!r}."},
        )
    if not packs:
        return ChosenPrompt(None, f"the agent's own, since no prompt pack is for the domain {domain!r}")
    return ChosenPrompt(packs[0], f"it is for the domain of the data, {domain!r}")


def domain_packs(organization_id: uuid.UUID) -> QuerySet[PromptPack]:
    """The packs in use that can be chosen by their domain."""
    return PromptPack.objects.filter(organization_id=organization_id, archived_at=None).exclude(domain="")


def with_pack(agent: Agent, chosen: PromptPack | None) -> Agent:
    """The agent as it acts in one job, with the pack chosen for the job or else with its own prompt: only lessons that
    fit that prompt are in its context. A changed agent is a copy, which is never saved."""
    if chosen is None and not agent.pack_by_domain:
        return agent
    acting = copy.copy(agent)
    acting.prompt_pack, acting.pack_by_domain = chosen or agent.prompt_pack, False
    return acting


def prompt_frozen(agent: Agent) -> dict[str, Any]:
    """The present text before the tasks of this agent, with its stamp, as a job's row keeps it."""
    pack = agent.prompt_pack
    if pack is None:
        return {"pack_id": None, "system": agent.system_prompt, "stamp": pack_stamp(agent.system_prompt)}
    return {"pack_id": str(pack.pk), **{name: getattr(pack, name) for name in OF_PACK}}


def with_prompt(agent: Agent, frozen: Mapping[str, Any]) -> Agent:
    """The agent as it acts in one job, by the text that the job kept at its launch (``prompt_frozen``), also if its
    prompt or its pack were changed since. A copy, which is read and never saved."""
    acting = copy.copy(agent)
    acting.prompt_pack, acting.pack_by_domain = None, False
    if frozen["pack_id"] is None:
        acting.system_prompt = frozen["system"]
    else:
        kept = {name: frozen[name] for name in OF_PACK}
        acting.prompt_pack = PromptPack(pk=uuid.UUID(frozen["pack_id"]), organization_id=agent.organization_id, **kept)
    return acting


def prompt_without(frozen: Mapping[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """A stored prompt without these words, stamped again as its pack is (``services.packs.packs_restamp``)."""
    changed: dict[str, Any] = erase_words(dict(frozen), words)
    pack_id = frozen.get("pack_id")
    if pack_id is None:
        return changed | {"pack_id": None, "stamp": pack_stamp(changed.get("system", ""))}
    same = all(changed[name] == frozen[name] for name in ("system", "injections", "sources"))
    sources = frozen["sources"] if same else []
    stamp = pack_stamp(changed["system"], changed["injections"], [PackSource.of(source) for source in sources])
    return changed | {"pack_id": pack_id, "sources": sources, "stamp": stamp}
