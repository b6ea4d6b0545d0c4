"""The probes of a plugin as an environment: a language model is asked each of them, and its reply is judged.

A probe brings its own tools, and the agent's are not connected: what an injection makes it call does nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from budgets.llm.types import ToolSpec
from evaluation.serving.safety.base import Probe, ProbeReply, ProbeTool, Ruling, SafetyPlugin
from experiences.privacy import cut_short
from experiences.rollouts.environments.base import StepOutcome, result
from experiences.rollouts.environments.scorers import Rubric
from experiences.rollouts.tools.base import AgentTool, ToolResult
from experiences.rollouts.types import ActionSpec, Outcome, Scenario

MOST_KEPT = 10_000  # characters of a reply in the evidence
NO_JUDGE = "rules can't decide, and no judge was asked"


@dataclass(frozen=True)
class SafetyEnvironment:
    """``judge_model`` judges what rules can't decide, at the agent's endpoint; "" for none. ``tools``: whether probes
    can bring tools; a foreign agent takes none. ``system`` is the agent's prompt."""

    plugin: SafetyPlugin
    judge_model: str = ""
    tools: bool = True
    system: str = ""
    name: str = "safety"
    actions: tuple[ActionSpec, ...] = ()
    lines: tuple[str, ...] = ()

    def scenarios(self, split: str, n: int, seed: int) -> Sequence[Scenario]:
        """The first ``n`` probes that the agent can be asked. There is one split, "held_out": nothing trains on it."""
        if split != "held_out":
            raise ValueError(f"Probes are held out: there is no split {split!r}.")
        probes = [probe for probe in self.plugin.probes if self.tools or not probe.tools]
        return [
            Scenario(i, one.prompt, {"probe": one.name}, {"task_type": one.name}) for i, one in enumerate(probes[:n])
        ]

    def start(self, scenario: Scenario, rng: np.random.Generator) -> ProbeEpisode:
        probe = next(one for one in self.plugin.probes if one.name == scenario.expected["probe"])
        return ProbeEpisode(self, probe)


class ProbeEpisode:
    """One attempt: a text without a tool call is the reply."""

    one_answer = True

    def __init__(self, environment: SafetyEnvironment, probe: Probe) -> None:
        self._environment, self._probe = environment, probe
        self._calls: list[tuple[str, Mapping[str, Any]]] = []
        self._judge: Callable[[str], Awaitable[Outcome]] | None = None
        self._text: str | None = None
        self._judged: Outcome | None = None

    @property
    def tools(self) -> Sequence[AgentTool]:
        return [NotedTool(tool, self._calls) for tool in self._probe.tools]

    @property
    def rubric(self) -> Rubric | None:
        model = self._environment.judge_model
        return Rubric(self._environment.plugin.rubric, model=model) if model else None

    def judged_by(self, judge: Callable[[str], Awaitable[Outcome]]) -> None:
        self._judge = judge

    async def opening(self) -> str:
        return self._probe.prompt

    async def say(self, text: str) -> StepOutcome:
        self._text = text
        if self._judge is not None and self._ruling().safe is None:
            self._judged = await self._judge(text)
        return StepOutcome({"type": "answer", "tool": "", "parameters": {"text": text}}, result(True, text), done=True)

    def outcome(self) -> Outcome:
        """Success is a safe reply. Where neither decides, the evidence has a "judge_error": it counts as not judged. An
        agent that went on calling tools until its steps ended is judged by its calls."""
        ruling = self._ruling()
        evidence = {"scorer": "safety", "probe": self._probe.name, "answer": cut_short(self._text or "", MOST_KEPT)}
        if ruling.safe is not None:
            return Outcome(float(ruling.safe), ruling.safe, {**evidence, "why": ruling.why})
        if self._judged is not None:
            judge = self._judged.evidence.get("judge") or {}
            judged = {name: one for name, one in self._judged.evidence.items() if name in ("judge", "judge_error")}
            return Outcome(
                self._judged.score, self._judged.success, {**evidence, **judged, "why": str(judge.get("reason", ""))}
            )
        return Outcome(0.0, False, {**evidence, "why": ruling.why, "judge_error": NO_JUDGE})

    async def close(self) -> None:
        return None

    def _ruling(self) -> Ruling:
        reply = ProbeReply(self._text or "", tuple(self._calls), self._environment.system)
        ruling = self._environment.plugin.rule(self._probe, reply)
        if self._text is None and ruling.safe:
            return Ruling(None, "It never replied.")
        return ruling


@dataclass(frozen=True)
class NotedTool:
    """A probe's tool as a model calls it."""

    tool: ProbeTool
    calls: list[tuple[str, Mapping[str, Any]]]

    @property
    def spec(self) -> ToolSpec:
        properties = {name: {"type": "string"} for name in self.tool.arguments}
        required = list(self.tool.arguments)
        schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        return ToolSpec(self.tool.name, self.tool.description, schema)

    async def run(self, arguments: Mapping[str, Any]) -> ToolResult:
        self.calls.append((self.tool.name, dict(arguments)))
        return ToolResult(True, self.tool.answer)
