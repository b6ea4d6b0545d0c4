"""The relative-rank reward: a trajectory's place among its siblings, where scores themselves mean little.

reward = (G - rank) / (G - 1) with ranks from 1 for the best; those that tie share the mean of their ranks, so that a
group of equals has no spread and teaches nothing (docs/algorithms.md#rewards).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from experiences.rollouts.environments.scorers import Rubric
from experiences.rollouts.options import Option
from experiences.rollouts.rewards.base import (
    FailurePay,
    LearningReward,
    Payment,
    Reward,
    inspects_code,
    reward_of,
    rewards,
    rubric_of,
)
from experiences.rollouts.types import Trajectory

BY: Final = ("outcome", "steps", "cost", "duration", "reward")
CHEAPER: Final[frozenset[str]] = frozenset({"steps", "cost", "duration"})  # the less the better
SCALES: Final = ("raw", "z")
NOUN: Final = "reward relative_rank"


def average_ranks(values: Sequence[float], margin: float = 0.0) -> list[float]:
    """Ranks from 1 for the largest of ``values`` (n,). Those within ``margin`` of the first of a tie belong to it and
    share the mean of their ranks. -inf ties with -inf."""
    order = sorted(range(len(values)), key=lambda i: -values[i])
    ranks = [0.0] * len(values)
    first = 0
    for place in range(1, len(order) + 1):
        if place < len(order) and _ties(values[order[first]], values[order[place]], margin):
            continue
        for i in order[first:place]:
            ranks[i] = (first + 1 + place) / 2
        first = place
    return ranks


def _ties(best: float, value: float, margin: float) -> bool:
    return value == best or best - value <= margin


@dataclass(slots=True)
class RelativeRankReward:
    """Ranks a group's trajectories ``by`` a measure. A rollout that ran out of time is the last; one that failed
    otherwise takes no part. Fewer than two leave nothing to rank: unscored.

    By steps, cost or duration, less is better, but with ``success_first`` only among successes: all failures share
    the last place, or else failing cheaply would be learned.
    """

    by: str = "outcome"
    scale: str = "raw"
    margin: float = 0.0
    success_first: bool = True
    other: Reward | None = None
    failures: FailurePay = field(default_factory=lambda: FailurePay(timeout=0.0))

    def __call__(self, trajectory: Trajectory) -> Payment:
        """Nothing yet: the group is ranked when it is complete. By another reward, that one is asked now."""
        evidence: dict[str, Any] = {"name": "relative_rank", "by": self.by}
        if self.other is not None:
            inner = self.other(trajectory)
            if inner.unscored:
                return Payment([], evidence=evidence, unscored=inner.unscored)
            evidence["measure"] = math.fsum(inner.components.values())
            evidence["components"] = dict(inner.components)
            if inner.evidence:
                evidence["of"] = inner.evidence
        return Payment([], evidence=evidence, unscored="not ranked yet")

    def settle(self, trajectories: Sequence[Trajectory]) -> list[Payment | None]:
        measures = [self._measure(trajectory) for trajectory in trajectories]
        cohort = [i for i, measure in enumerate(measures) if measure is not None]
        payments: list[Payment | None] = [None] * len(trajectories)
        values = [measure for measure in measures if measure is not None]
        if len(cohort) < 2:
            for i in cohort:
                evidence = self._evidence(trajectories[i], values[0], cohort=1)
                payments[i] = Payment([], evidence=evidence, unscored="fewer than 2 siblings could be ranked")
            return payments
        ranks = average_ranks(values, self.margin)
        raw = [(len(cohort) - rank) / (len(cohort) - 1) for rank in ranks]
        scaled = _standardised(raw) if self.scale == "z" else raw
        for i, value, rank, plain, reward in zip(cohort, values, ranks, raw, scaled, strict=True):
            evidence = self._evidence(trajectories[i], value, cohort=len(cohort), rank=rank, raw=plain)
            paid = Payment.at_the_end(trajectories[i], {"relative_rank": reward}, evidence)
            payments[i] = replace(paid, before=value if self.other is not None and math.isfinite(value) else None)
        return payments

    def _measure(self, trajectory: Trajectory) -> float | None:
        """The ranked value, the larger the better; None if the trajectory takes no part."""
        if trajectory.error:
            return -math.inf if trajectory.error.startswith("timeout:") else None
        if trajectory.evidence.get("judge_error"):
            return None
        if self.by in CHEAPER and self.success_first and not trajectory.success:
            return -math.inf
        value = self._value(trajectory)
        return value if value is not None and math.isfinite(value) else None

    def _value(self, trajectory: Trajectory) -> float | None:
        if self.by == "outcome":
            return trajectory.outcome
        if self.by == "steps":
            return -float(len(trajectory.steps))
        if self.by == "cost":
            return -float(trajectory.cost_micros)
        if self.by == "duration":
            return -round(trajectory.duration_ms, 3)  # as it is stored: what comes back after a crash ties alike
        kept = trajectory.evidence.get("reward")
        value = kept.get("measure") if isinstance(kept, Mapping) else None
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    def _evidence(self, trajectory: Trajectory, measure: float, **found: float) -> dict[str, Any]:
        before = trajectory.evidence.get("reward")
        kept = {n: before[n] for n in ("components", "of") if n in before} if isinstance(before, Mapping) else {}
        return {
            "name": "relative_rank",
            "by": self.by,
            "measure": measure if math.isfinite(measure) else None,
            "scale": self.scale,
            **found,
            **kept,
        }

    @property
    def rubric(self) -> Rubric | None:
        """That of the reward by which it ranks, if it wants a judge."""
        return rubric_of(self.other)

    @property
    def inspects_code(self) -> bool:
        return inspects_code(self.other)

    # -- another reward that knows what came before ----------------------------------------------------------------

    def learn(self, trajectories: Sequence[Trajectory]) -> None:
        if isinstance(self.other, LearningReward):
            self.other.learn(trajectories)

    def state_dict(self) -> dict[str, Any]:
        return self.other.state_dict() if isinstance(self.other, LearningReward) else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if isinstance(self.other, LearningReward):
            self.other.load_state_dict(state)


def _standardised(values: Sequence[float]) -> list[float]:
    """(value - mean) / std of the population; 0 where all are equal."""
    mean = math.fsum(values) / len(values)
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
    return [(value - mean) / std if std > 1e-12 else 0.0 for value in values]


OPTIONS: Final[Mapping[str, Option]] = {
    "by": Option(
        "What is ranked: outcome (default), steps, cost or duration (the less the better), or another reward.",
        choices=BY,
    ),
    "scale": Option("raw: from 0 to 1 (default); z: mean 0 and spread 1 in each group.", choices=SCALES),
    "margin": Option(
        "Measures that are no further apart tie; 0 by default. A noisy judge's scores need about 0.1.", 0.0, 0, 1e9
    ),
    "success_first": Option("By steps, cost, duration: all failures share the last place (true, the default).", True),
    "of": Option("By reward: the name of the reward that is ranked."),
    "of_options": Option("By reward: its options.", {}),
}


@reward_of("relative_rank", "The place among the siblings of a group: 1 for the best, 0 for the last.", OPTIONS)
def relative_rank(by: str, of: Any, of_options: Any, **values: Any) -> RelativeRankReward:
    return RelativeRankReward(by, other=_other(by, of, of_options), **values)


def _other(by: str, name: Any, own: Any) -> Reward | None:
    if by != "reward":
        if name is not None or own:
            raise ValueError(f"{NOUN}: of and of_options are for by: reward; by is {by}.")
        return None
    if not isinstance(name, str) or name == "relative_rank" or name not in rewards.names():
        known = ", ".join(one for one in rewards.names() if one != "relative_rank")
        raise ValueError(f"{NOUN}: of must be one of {known}; got {name!r}.")
    if not isinstance(own, Mapping):
        raise ValueError(f"{NOUN}: of_options must be an object; got {own!r}.")
    try:
        return rewards.get(name)(own)
    except ValueError as error:
        raise ValueError(f"{NOUN}: of_options: {error}") from error
