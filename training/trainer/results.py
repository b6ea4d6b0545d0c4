"""Result of one update, and figures of its rollouts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from experiences.rollouts.types import TrajectoryGroup
from training.algorithm.advantages import GroupAdvantages
from training.algorithm.credit import FlatSteps
from training.algorithm.value import explained_variance


@dataclass(slots=True)
class UpdateResult:
    """``applied`` counts optimiser steps: 0 where the batch carried no signal. ``not_finite``: a step was refused
    because its loss or gradient was not a finite number."""

    metrics: dict[str, float]
    applied: int = 0
    not_finite: bool = False
    warnings: list[str] = field(default_factory=list)


def observed(groups: Sequence[TrajectoryGroup], steps: FlatSteps, whole: GroupAdvantages) -> dict[str, float]:
    """Figures of the rollouts alone, before the update."""
    trajectories = [trajectory for group in groups for trajectory in group.trajectories]
    reward = steps.reward[np.isfinite(steps.reward)]
    n = max(len(trajectories), 1)
    return {
        "reward_mean": float(reward.mean()) if len(reward) else 0.0,
        "reward_std": whole.spread,
        "reward_max": float(reward.max()) if len(reward) else 0.0,
        "success_rate": sum(t.success for t in trajectories) / n,
        "frac_reward_zero_std": whole.frac_zero_std,
        "explained_variance": _explained(steps),
        "steps_mean": sum(len(t.steps) for t in trajectories) / n,
        "failed_rollouts": float(sum(bool(t.error) for t in trajectories)),
        "truncated_rate": sum(t.truncated for t in trajectories) / n,
        "trajectories": float(len(trajectories)),
        "steps": float(sum(len(t.steps) for t in trajectories)),
        "grad_norm": 0.0,
        "clip_fraction": 0.0,
    }


def _explained(steps: FlatSteps) -> float:
    """Explained variance of V(initial state); 0 where there is no value function or nothing to explain."""
    if steps.state_value is None:
        return 0.0
    first = steps.position == 0
    return finite(explained_variance(steps.state_value[first], steps.reward[steps.trajectory[first]]))


def finite(number: float) -> float:
    """JSON and databases know no NaN; what could not be measured is reported as 0."""
    return number if math.isfinite(number) else 0.0
