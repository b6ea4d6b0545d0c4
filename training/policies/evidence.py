"""Rollouts for estimating effects near a query: inclusions, rewards, and vectors of queries.

One number a lesson needs sums only (``effects``). How an effect differs between queries is not known beforehand, so the
rollouts themselves are kept, the latest of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np

from training.algorithm.arrays import BoolArray, FloatArray, IntArray
from training.algorithm.relevance import QueryEffects, query_effects

MOST: Final = 3_000  # rollouts


@dataclass
class RolloutEvidence:
    """Rollouts: the lessons ``included`` (N, K), ``reward`` (N,), ``group`` (N,) and each query as a vector (N, R)."""

    included: BoolArray = field(default_factory=lambda: np.zeros((0, 0), dtype=np.bool_))
    reward: FloatArray = field(default_factory=lambda: np.zeros(0))
    group: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    vectors: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))

    def grow(self, k: int) -> None:
        """Makes room for ``k`` lessons; these rollouts included none of the new ones."""
        more = k - self.included.shape[1]
        if more > 0:
            self.included = np.pad(self.included, ((0, 0), (0, more)))

    def forget(self, k: int) -> None:
        """Lesson ``k`` has a new text."""
        self.included[:, k] = False

    def learn(self, included: BoolArray, reward: FloatArray, group: IntArray, vectors: FloatArray) -> None:
        """Takes in further rollouts; their groups are new ones, also where their numbers are those of groups before."""
        first = int(self.group.max()) + 1 if len(self.group) else 0
        before = self.vectors if len(self.vectors) else np.zeros((0, vectors.shape[1]))
        self.included = np.vstack([self.included, included])
        self.reward = np.concatenate([self.reward, reward])
        self.group = np.concatenate([self.group, first + np.asarray(group, dtype=np.int64)])
        self.vectors = np.vstack([before, vectors])
        if len(self.reward) > MOST:
            oldest = self.group[len(self.reward) - MOST]
            kept = self.group > oldest  # whole groups
            self.included, self.reward, self.group = self.included[kept], self.reward[kept], self.group[kept]
            self.vectors = self.vectors[kept]

    def effects(self, lessons: IntArray) -> QueryEffects:
        """Estimated effects of these lessons (indices in the library)."""
        return query_effects(self.included[:, lessons].astype(np.float64), self.reward, self.group, self.vectors)

    def state_dict(self) -> dict[str, Any]:
        return {
            "told": self.included.copy(),
            "reward": self.reward.copy(),
            "group": self.group.copy(),
            "vectors": self.vectors.copy(),
        }

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Self:
        return cls(
            np.array(state["told"], dtype=np.bool_),
            np.array(state["reward"], dtype=np.float64),
            np.array(state["group"], dtype=np.int64),
            np.array(state["vectors"], dtype=np.float64),
        )
