"""Runtime: plays one episode with a policy and records every step as it happens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from experiences.rollouts.environments.base import Episode
from experiences.rollouts.environments.scorers import Rubric
from experiences.rollouts.types import Observation, RolloutKey, Scenario, Step, Trajectory


class RolloutFailure(Exception):
    """A rollout that could not go on, and the boundary that failed. Never stops the other rollouts.

    RolloutFailure
      PolicyFailure        the policy (or the model behind it) raised
      EnvironmentFailure   the environment raised, where it should have answered with a failed result
    """

    boundary = "rollout"


class PolicyFailure(RolloutFailure):
    boundary = "policy"


class EnvironmentFailure(RolloutFailure):
    boundary = "environment"


class Halted(Exception):
    """No rollout of this run can go on for now: the budget refuses, or the model's service is away.

    It says nothing about the agent, so this rollout is dropped and not counted as a failure. ``reason`` is
    "budget_exceeded", "spending_rate", "spends_too_fast", "waiting_for_llm", "llm_refused" or "reward_timeout";
    ``retry_after`` is in seconds, None where it is not known.
    """

    def __init__(self, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_after = retry_after


class PromptContext(NamedTuple):
    """Context of an agent besides its own prompt. ``note`` records the lessons in it."""

    text: str
    note: Mapping[str, Any]


class ContextSource(Protocol):
    """A policy as seen by a language model's runtime: it gives the context of each rollout."""

    @property
    def version(self) -> str: ...

    def context_for(self, key: RolloutKey, query: str) -> PromptContext: ...


class ActionSelector(Protocol):
    """A policy as a runtime sees it: picks one of the allowed actions, and says how likely that pick was."""

    @property
    def version(self) -> str: ...

    def choose(self, observation: Observation, rng: np.random.Generator, *, temperature: float) -> tuple[int, float]:
        """(index, log-probability of it). Temperature 0 takes the best, ties broken at random."""
        ...


def noting(record: Callable[[Step], None], context: PromptContext) -> Callable[[Step], None]:
    """Wraps ``record``: notes the agent's context in the first step."""
    pending = dict(context.note) if context.text or "logprob" in context.note else None

    def recorded(step: Step) -> None:
        nonlocal pending
        if pending is not None:
            step, pending = replace(step, state=step.state | {"told": pending}), None
        record(step)

    return recorded


@runtime_checkable
class Judging(Protocol):
    """A runtime behind which there is a language model that can judge."""

    async def verdict(self, rubric: Rubric, scenario: Scenario, trajectory: Trajectory) -> Mapping[str, Any]:
        """A verdict on a rollout that has ended, as evidence (``experiences.rollouts.rewards.base.JudgedReward``).

        Raises:
            Halted: no money, no service, no right.
        """
        ...


@dataclass(slots=True)
class RolloutAttempt:
    """One rollout as its runtime plays it. ``record`` is called after each step, so that a rollout that is cut short
    keeps its partial steps; ``check`` before each step, and raises to stop the rollout (pause, cancel, lost lease)."""

    key: RolloutKey
    scenario: Scenario
    episode: Episode
    rng: np.random.Generator
    record: Callable[[Step], None]
    check: Callable[[], None]


class Runtime(Protocol):
    """Plays an attempt until its episode ends or ``max_steps`` is reached. Returns whether the episode ended by itself.

    Raises:
        RolloutFailure: something at a boundary failed; the failure names it.
        Halted: neither this rollout nor any other of the run can go on for now.
    """

    async def play(self, attempt: RolloutAttempt) -> bool: ...


def calls_model(runtime: str) -> bool:
    """Whether an agent's decisions are a language model's, so that each of its calls is metered and paid for."""
    return runtime != "action"
