"""Scenarios, steps, trajectories and groups. Pure values, no Django."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from experiences.rollouts.thoughts import without_thoughts


@dataclass(frozen=True, slots=True)
class Scenario:
    """One query together with what counts as success.

    ``index`` is the scenario's stable place in its pool: rollouts are kept under it. ``expected`` is for the
    scorer only; no agent ever sees it.
    """

    index: int
    query: str
    expected: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)


class RolloutKey(NamedTuple):
    """Under what a rollout is kept, and from what (with the run's seed) its random numbers are drawn."""

    iteration: int
    scenario: int
    rollout: int

    @property
    def path(self) -> str:
        return f"{self.iteration}/{self.scenario}/{self.rollout}"


@dataclass(slots=True)
class Step:
    """One decision of an agent and what came of it.

    ``state``, ``action`` and ``result`` are JSON values: state = {"observation", "done"} (what the agent saw),
    action = {"type", "tool", "parameters"}, result = {"success", "output", "error"}.
    ``choice`` and ``logprob`` are set by policies that choose from a list: the index taken and the exact
    log-probability of it under the policy that acted. ``reward`` is this step's shaped reward. ``sampled`` holds the
    tokens of the model's call, where they were captured (``experiences.rollouts.captured``); ``call`` says how the
    model was asked and why its answer ended (``experiences.rollouts.call_notes``). ``parent`` is the place (from 0) of
    the step within which this one was made: that of a tool which asked a model, say.
    """

    state: dict[str, Any]
    action: dict[str, Any]
    result: dict[str, Any]
    timestamp: float = 0.0  # seconds since the epoch
    duration_ms: float = 0.0
    tokens: int = 0
    cost_micros: int = 0
    reward: float = 0.0
    choice: int | None = None
    logprob: float | None = None
    sampled: str = ""
    call: dict[str, Any] = field(default_factory=dict)
    parent: int | None = None


@dataclass(slots=True)
class Trajectory:
    """The record of one rollout, whole or partial.

    ``outcome`` is the environment's score in [0, 1]. ``reward`` is what the algorithm learns from; NaN when it
    could not be scored: such a trajectory leaves its group's baseline. ``ranked``: a reward replaced it once its group
    was complete; ``reward_before_ranking`` is the reward before that (None: none). ``error`` names the boundary that
    failed ("timeout: ...", "environment: ...", "policy: ...", "reward: ...") or is empty.
    """

    key: RolloutKey
    query: str
    steps: list[Step]
    success: bool = False
    outcome: float = 0.0
    reward: float = math.nan
    components: dict[str, float] = field(default_factory=dict)
    evidence: dict[str, Any] = field(default_factory=dict)
    truncated: bool = False
    error: str = ""
    policy_version: str = ""
    model: str = ""
    started_at: float = 0.0
    duration_ms: float = 0.0
    reward_before_ranking: float | None = None
    ranked: bool = False

    @property
    def tokens(self) -> int:
        return sum(step.tokens for step in self.steps)

    @property
    def cost_micros(self) -> int:
        """Cost of the agent's own calls: the cost of serving it."""
        return sum(step.cost_micros for step in self.steps)

    @property
    def spent_micros(self) -> int:
        """Cost of the rollout for the run or the test: the agent's calls, and the judges' verdicts (that of the
        environment on its answer and that of the reward on the whole)."""
        verdict = self.evidence.get("verdict")
        judges = (self.evidence.get("judge"), verdict.get("judge") if isinstance(verdict, Mapping) else None)
        costs = [judge.get("cost_micros") for judge in judges if isinstance(judge, Mapping)]
        return self.cost_micros + sum(cost for cost in costs if isinstance(cost, int))


@dataclass(slots=True)
class TrajectoryGroup:
    """G trajectories of one scenario, and what the algorithm made of them.

    ``advantages[i]`` is trajectory i's group-relative advantage, ``step_advantages[i][t]`` that of its step t,
    ``normalized_rewards[i]`` = (r - mean) / std of the group (0 where std is 0). All empty until the update.
    """

    scenario: Scenario
    trajectories: list[Trajectory]
    advantages: list[float] = field(default_factory=list)
    normalized_rewards: list[float] = field(default_factory=list)
    step_advantages: list[list[float]] = field(default_factory=list)
    has_signal: bool = False


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """One thing an agent may do: a tool, ``verify`` or ``answer``."""

    name: str
    kind: str  # "tool" | "verify" | "answer"
    description: str = ""


class Observation(NamedTuple):
    """Everything a choosing policy may look at: the question's text, the last observation, what was tried."""

    query: str
    last: str  # "" before the first result
    done: tuple[str, ...]  # sorted tags such as "gcd#ok", "verify#no"
    mask: tuple[bool, ...] | None = None  # True = allowed; None = everything is


@dataclass(frozen=True, slots=True)
class Outcome:
    """The verdict of an environment's scorer: score in [0, 1], success, and the evidence for it."""

    score: float
    success: bool
    evidence: Mapping[str, Any] = field(default_factory=dict)


def final_answer(steps: Sequence[Step]) -> str | None:
    """The answer that ended a rollout, without thoughts; None where it was a conversation, or ended otherwise."""
    if not steps or steps[-1].action.get("type") != "answer":
        return None
    return without_thoughts(str((steps[-1].action.get("parameters") or {}).get("text", "")))


def reindexed(scenarios: Sequence[Scenario], start: int = 0) -> list[Scenario]:
    """The same scenarios with consecutive indices from ``start``."""
    return [replace(scenario, index=start + i) for i, scenario in enumerate(scenarios)]
