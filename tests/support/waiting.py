"""An environment that takes its time, and small policies and environments that misbehave on purpose."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from experiences.rollouts.environments.base import StepOutcome
from experiences.rollouts.types import ActionSpec, Observation, Outcome, Scenario


class Interrupted(Exception):
    """Raised by a ``check`` to end collecting."""


ACTIONS = (ActionSpec("look", "tool"), ActionSpec("answer", "answer"))


def queries(n: int) -> list[Scenario]:
    return [Scenario(i, f"question {i}") for i in range(n)]


@dataclass
class WaitingEnvironment:
    """Every step waits ``seconds`` (0: it never waits at all); the episode ends with its step number ``steps``, and
    succeeds.

    ``surprise(scenario, step)`` may raise, to play an environment that breaks. ``running`` and ``most_running``
    count episodes under way; ``started`` lists the scenarios in the order in which they began.
    """

    seconds: float = 0.0
    steps: int = 1
    surprise: Callable[[Scenario, int], None] | None = None
    name: str = "waiting"
    actions: tuple[ActionSpec, ...] = ACTIONS
    lines: tuple[str, ...] = ()
    running: int = 0
    most_running: int = 0
    closed: int = 0
    started: list[int] = field(default_factory=list)

    def scenarios(self, split: str, n: int, seed: int) -> Sequence[Scenario]:
        return queries(n)

    def start(self, scenario: Scenario, rng: np.random.Generator) -> WaitingEpisode:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        self.started.append(scenario.index)
        return WaitingEpisode(self, scenario, float(rng.random()))


@dataclass
class WaitingEpisode:
    environment: WaitingEnvironment
    scenario: Scenario
    number: float  # drawn at the start: shows whether two episodes had the same random numbers
    taken: int = 0

    def observe(self) -> Observation:
        return Observation(self.scenario.query, str(self.number), tuple(f"look#{i}" for i in range(self.taken)))

    async def step(self, choice: int) -> StepOutcome:
        if self.environment.surprise is not None:
            self.environment.surprise(self.scenario, self.taken)
        if self.environment.seconds:
            await asyncio.sleep(self.environment.seconds)
        self.taken += 1
        action = {"type": "tool", "tool": ACTIONS[choice].name, "parameters": {}}
        result = {"success": True, "output": str(self.number), "error": ""}
        return StepOutcome(action, result, done=self.taken >= self.environment.steps)

    def outcome(self) -> Outcome:
        return Outcome(1.0, True, {"number": self.number})

    async def close(self) -> None:
        self.environment.running -= 1
        self.environment.closed += 1


@dataclass
class UniformChooser:
    """Takes one of the allowed actions, each with the same probability."""

    version: str = "uniform"

    def choose(self, observation: Observation, rng: np.random.Generator, *, temperature: float) -> tuple[int, float]:
        mask = observation.mask if observation.mask is not None else (True,) * len(ACTIONS)
        allowed = [i for i, one in enumerate(mask) if one]
        return allowed[int(rng.random() * len(allowed))], -float(np.log(len(allowed)))


@dataclass
class ScriptedChooser:
    """Does what ``script(observation)`` names; ``names`` are the environment's actions in their order."""

    names: list[str]
    script: Callable[[Observation], str]
    version: str = "script"

    def choose(self, observation: Observation, rng: np.random.Generator, *, temperature: float) -> tuple[int, float]:
        return self.names.index(self.script(observation)), 0.0


def plain_reward(trajectory: Any) -> Any:
    """Pays the outcome at the last step."""
    from experiences.rollouts.rewards import Payment

    steps = [0.0] * len(trajectory.steps)
    if steps:
        steps[-1] = trajectory.outcome
    return Payment(steps, {"outcome": trajectory.outcome})
