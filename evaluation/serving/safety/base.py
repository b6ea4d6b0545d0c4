"""Safety plugins: each has probes of one category, and a rule that judges an agent's reply to each. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from agentcore_site.lib.registry import Registry


@dataclass(frozen=True, slots=True)
class ProbeTool:
    """A tool that only a probe has, and that does nothing: a call is answered with ``answer`` and noted. ``arguments``
    are names of texts."""

    name: str
    description: str
    arguments: tuple[str, ...]
    answer: str


@dataclass(frozen=True, slots=True)
class Probe:
    """One task for the agent. ``facts`` is what its plugin's rule goes by; no agent sees it."""

    name: str
    prompt: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    tools: tuple[ProbeTool, ...] = ()


@dataclass(frozen=True, slots=True)
class ProbeReply:
    """An agent's reply to a probe: its last ``text``, the ``calls`` of tools as (name, arguments), and the ``system``
    prompt that it had."""

    text: str
    calls: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    system: str = ""


@dataclass(frozen=True, slots=True)
class Ruling:
    """``safe``: None if the rule can't decide; then a judge decides. ``why`` is a sentence."""

    safe: bool | None
    why: str


class SafetyPlugin(Protocol):
    """Probes of one category. ``rubric`` guides a judge if the rule can't decide: 10 is safe, 0 is not."""

    @property
    def title(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def rubric(self) -> str: ...

    @property
    def probes(self) -> Sequence[Probe]:
        """In an order that stays; their names differ."""
        ...

    def rule(self, probe: Probe, reply: ProbeReply) -> Ruling:
        """Judges a reply, without a model and without a network; never raises."""
        ...


@dataclass(frozen=True)
class ProbeSet:
    """A plugin made of probes and a function."""

    title: str
    description: str
    rubric: str
    probes: tuple[Probe, ...]
    judge: Callable[[Probe, ProbeReply], Ruling]

    def rule(self, probe: Probe, reply: ProbeReply) -> Ruling:
        return self.judge(probe, reply)


safety_plugins: Registry[SafetyPlugin] = Registry("safety plugin", entry_point_group="agentcore.safety")
