"""Effect of each lesson on the reward, with its standard error: ridge regression on rewards centred in their groups.

All effects are estimated from the same rollouts, as in a factorial experiment (docs/algorithms.md#effects-of-lessons).
Only sums are stored, so that a run of any length costs K^2 numbers. A lesson with a new text starts from zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agentcore_site.lib.statistics import NORMAL
from training.algorithm.arrays import BoolArray, FloatArray, IntArray, centred

RIDGE = 4.0  # the prior: effects of about half the rewards' spread, before anything was seen


@dataclass(frozen=True)
class Estimate:
    """``beta`` (K,) and its standard error; ``information`` (K,) is the sum of squared centred inclusions."""

    beta: FloatArray
    error: FloatArray
    information: FloatArray

    def above(self, threshold: float = 0.0) -> FloatArray:
        """P(beta_k > threshold), (K,)."""
        z = (self.beta - threshold) / np.maximum(self.error, 1e-12)
        return np.array([NORMAL.cdf(float(one)) for one in z])


@dataclass
class Effects:
    """Sums of a ridge regression. ``rollouts`` (K,) counts those that could see a lesson's present text."""

    gram: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    moment: FloatArray = field(default_factory=lambda: np.zeros(0))
    rollouts: FloatArray = field(default_factory=lambda: np.zeros(0))
    square: float = 0.0
    free: float = 0.0  # rollouts minus groups

    def grow(self, k: int) -> None:
        """Room for ``k`` lessons; nothing is known of the new ones."""
        more = k - len(self.moment)
        if more > 0:
            self.gram = np.pad(self.gram, ((0, more), (0, more)))
            self.moment = np.pad(self.moment, (0, more))
            self.rollouts = np.pad(self.rollouts, (0, more))

    def forget(self, k: int) -> None:
        """Lesson ``k`` has a new text."""
        self.gram[k, :] = 0.0
        self.gram[:, k] = 0.0
        self.moment[k] = 0.0
        self.rollouts[k] = 0.0

    def of_lessons(self, places: Sequence[int]) -> Effects:
        """The sums of these lessons, in this order, net of what the others did in the same rollouts: their effects are
        estimated as before (the others are profiled out of the ridge regression, by its Schur complement)."""
        at = np.array(places, dtype=np.int64)
        rest = np.setdiff1d(np.flatnonzero(np.diag(self.gram) > 0), at)
        between = self.gram[np.ix_(at, rest)]
        inverse = np.linalg.inv(self.gram[np.ix_(rest, rest)] + RIDGE * np.eye(len(rest)))
        return Effects(
            self.gram[np.ix_(at, at)] - between @ inverse @ between.T,
            self.moment[at] - between @ inverse @ self.moment[rest],
            self.rollouts[at],
            self.square - float(self.moment[rest] @ inverse @ self.moment[rest]),
            self.free - len(rest) if self.free else 0.0,
        )

    def weighed(self, weight: float) -> Effects:
        """The sums as if only this share of the rollouts had been made."""
        return Effects(
            weight * self.gram,
            weight * self.moment,
            weight * self.rollouts,
            weight * self.square,
            weight * self.free,
        )

    def learn(self, z: BoolArray, reward: FloatArray, group: IntArray, tried: BoolArray) -> None:
        """Takes in N rollouts: inclusion (N, K), reward (N,), group (N,), which lessons had a chance (K,). Rewards that
        are NaN are left out; so is a group of which fewer than two are known."""
        known = np.isfinite(reward)
        included, reward, group = z[known].astype(np.float64), reward[known], group[known]
        _, index, counts = np.unique(group, return_inverse=True, return_counts=True)
        index = index.reshape(-1)
        used = counts[index] > 1
        if not used.any():
            return
        zc, yc = centred(included, group)[used], centred(reward[:, None], group)[used, 0]
        self.gram += zc.T @ zc
        self.moment += zc.T @ yc
        self.square += float(yc @ yc)
        self.free += float(used.sum() - len(np.unique(index[used])))
        self.rollouts += tried * float(used.sum())

    @property
    def variance(self) -> float:
        """Of rewards in their groups; 1 where none is known."""
        return self.square / self.free if self.free else 1.0

    def estimate(self) -> Estimate:
        """Effects, errors and information of all K lessons."""
        k = len(self.moment)
        inverse = np.linalg.inv(self.gram + RIDGE * np.eye(k)) if k else np.zeros((0, 0))
        beta = inverse @ self.moment
        residual = self.square - 2 * float(beta @ self.moment) + float(beta @ self.gram @ beta)
        tried = int((np.diag(self.gram) > 0).sum()) if k else 0
        freedom = max(self.free - tried, 1.0)
        variance = max(residual, 1e-9) / freedom if self.free else 1.0
        # sd of the estimate under the model; the ridge only makes it smaller, so it is not added to.
        error = np.sqrt(variance * np.maximum(np.diag(inverse), 0.0)) if k else np.zeros(0)
        return Estimate(beta, error, np.diag(self.gram).copy() if k else np.zeros(0))

    def state_dict(self) -> dict[str, Any]:
        return {
            "gram": self.gram.copy(),
            "moment": self.moment.copy(),
            "rollouts": self.rollouts.copy(),
            "square": self.square,
            "free": self.free,
        }

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> Effects:
        return cls(
            gram=np.array(state["gram"], dtype=np.float64),
            moment=np.array(state["moment"], dtype=np.float64),
            rollouts=np.array(state["rollouts"], dtype=np.float64),
            square=float(state["square"]),
            free=float(state["free"]),
        )
