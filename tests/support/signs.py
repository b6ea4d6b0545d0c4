"""A small world that can be learned in a second: a word in the question decides which of four tools is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from experiences.rollouts.environments.base import StepOutcome
from experiences.rollouts.types import ActionSpec, Observation, Outcome, Scenario

TOOLS = ("sun", "moon", "star", "rain")
ACTIONS = (*(ActionSpec(tool, "tool") for tool in TOOLS), ActionSpec("answer", "answer"))
OPENINGS = ("Please show", "Now give me", "I want to see", "Can you find")


@dataclass(frozen=True)
class SignEnvironment:
    """The right tool brings "ok", another one "odd" or (seeded, one call in five) an error; an answer after "ok"
    succeeds."""

    name: str = "signs"
    actions: tuple[ActionSpec, ...] = ACTIONS
    lines: tuple[str, ...] = ()

    def scenarios(self, split: str, n: int, seed: int) -> Sequence[Scenario]:
        names = [f"{OPENINGS[i % 4]} the {TOOLS[(i // 4) % 4]} on day {split}{i}" for i in range(n)]
        return [Scenario(i, name, {"tool": TOOLS[(i // 4) % 4]}) for i, name in enumerate(names)]

    def start(self, scenario: Scenario, rng: np.random.Generator) -> SignEpisode:
        return SignEpisode(scenario, rng)


@dataclass
class SignEpisode:
    scenario: Scenario
    rng: np.random.Generator
    last: str = ""
    done: set[str] = field(default_factory=set)
    answered: bool = False

    def observe(self) -> Observation:
        mask = (True,) * len(TOOLS) + (bool(self.last),)
        return Observation(self.scenario.query, self.last, tuple(sorted(self.done)), mask)

    async def step(self, choice: int) -> StepOutcome:
        if choice == len(TOOLS):
            self.answered = True
            return StepOutcome(_action("answer", ""), _result(True, self.last), done=True)
        tool = TOOLS[choice]
        if tool != self.scenario.expected["tool"] and self.rng.random() < 0.2:
            self.done.add(f"{tool}#err")
            return StepOutcome(_action("tool", tool), _result(False, ""))
        self.last = "ok" if tool == self.scenario.expected["tool"] else "odd"
        self.done.add(f"{tool}#ok")
        return StepOutcome(_action("tool", tool), _result(True, self.last))

    def outcome(self) -> Outcome:
        right = self.answered and self.last == "ok"
        return Outcome(float(right), right)

    async def close(self) -> None:
        return None


def _action(kind: str, tool: str) -> dict[str, Any]:
    return {"type": kind, "tool": tool, "parameters": {}}


def _result(success: bool, output: str) -> dict[str, Any]:
    return {"success": success, "output": output, "error": "" if success else "nothing there"}
