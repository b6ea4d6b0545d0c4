"""Plays a policy on scenarios without learning from it: for selection, evaluation and comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from experiences.rollouts.collect import Keep, RolloutPlan, collect
from experiences.rollouts.types import RolloutKey, Scenario, Trajectory
from training.algorithm.arrays import FloatArray

SELECTION_STREAM = 1  # random numbers of training rollouts come from stream 0


@dataclass(frozen=True, slots=True)
class Played:
    """Results of k samples on each of n scenarios, in the order of the scenarios. ``success``, ``steps`` and
    ``reward`` are (n, k); a reward that could not be scored is NaN. ``trajectories`` has n lists of k."""

    success: FloatArray
    steps: FloatArray
    reward: FloatArray
    trajectories: list[list[Trajectory]]

    def followed_by(self, more: Played) -> Played:
        """Joins further samples of the same scenarios."""
        return Played(
            success=np.hstack([self.success, more.success]),
            steps=np.hstack([self.steps, more.steps]),
            reward=np.hstack([self.reward, more.reward]),
            trajectories=[[*a, *b] for a, b in zip(self.trajectories, more.trajectories, strict=True)],
        )

    @property
    def success_rate(self) -> float:
        return float(self.success.mean()) if self.success.size else 0.0

    @property
    def mean_steps(self) -> float:
        return float(self.steps.mean()) if self.steps.size else 0.0

    @property
    def mean_reward(self) -> float:
        known = self.reward[np.isfinite(self.reward)]
        return float(known.mean()) if known.size else 0.0


def _ignore(_: Trajectory) -> None:
    """The default ``keep``: nothing is stored."""


async def play(
    scenarios: Sequence[Scenario],
    samples: int,
    plan: RolloutPlan,
    *,  # the first rollout's key, and where rollouts are kept
    iteration: int = 0,
    first: int = 0,
    kept: Mapping[RolloutKey, Trajectory] | None = None,
    keep: Keep = _ignore,
) -> Played:
    """``samples`` rollouts of each scenario, numbered from ``first`` on.

    Two policies played with equal seed, stream and ``iteration`` meet the same random numbers, which pairs their
    results. Raises what ``collect`` raises.
    """
    work = [(RolloutKey(iteration, s.index, sample), s) for s in scenarios for sample in range(first, first + samples)]
    trajectories = await collect(work, plan, kept=kept or {}, keep=keep)
    shape = (len(scenarios), samples)
    return Played(
        success=np.array([float(t.success) for t in trajectories]).reshape(shape),
        steps=np.array([float(len(t.steps)) for t in trajectories]).reshape(shape),
        reward=np.array([t.reward for t in trajectories]).reshape(shape),
        trajectories=[trajectories[i * samples : (i + 1) * samples] for i in range(len(scenarios))],
    )
