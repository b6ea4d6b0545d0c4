"""Rollouts for estimating effects by the words of a query: inclusions, rewards, and features of queries.

One number a lesson needs sums only (``effects``). How an effect differs between queries is not known beforehand, so the
rollouts themselves are kept, the latest of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np

from training.algorithm.arrays import BoolArray, FloatArray, IntArray
from training.algorithm.relevance import QuerySums, query_sums

MOST: Final = 3_000  # rollouts


@dataclass
class RolloutEvidence:
    """Rollouts: the lessons ``included`` (N, K), ``reward`` (N,), ``group`` (N,), and ``query`` (N,): an index of
    ``features`` (Q, F), the distinct queries by the words that occur in them."""

    included: BoolArray = field(default_factory=lambda: np.zeros((0, 0), dtype=np.bool_))
    reward: FloatArray = field(default_factory=lambda: np.zeros(0))
    group: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    query: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    features: BoolArray = field(default_factory=lambda: np.zeros((0, 0), dtype=np.bool_))

    def grow(self, k: int) -> None:
        """Makes room for ``k`` lessons; these rollouts included none of the new ones."""
        more = k - self.included.shape[1]
        if more > 0:
            self.included = np.pad(self.included, ((0, 0), (0, more)))

    def forget(self, k: int) -> None:
        """Lesson ``k`` has a new text."""
        self.included[:, k] = False

    def learn(self, included: BoolArray, reward: FloatArray, group: IntArray, features: FloatArray) -> None:
        """Takes in further rollouts, with the ``features`` (G, F) of the query of each group in 0, 1, ... Their groups
        are new ones, also where their numbers are those of groups before."""
        first = int(self.group.max()) + 1 if len(self.group) else 0
        query = np.array([self._place(one) for one in features.astype(np.bool_)], dtype=np.int64)
        self.included = np.vstack([self.included, included])
        self.reward = np.concatenate([self.reward, reward])
        self.group = np.concatenate([self.group, first + np.asarray(group, dtype=np.int64)])
        self.query = np.concatenate([self.query, query[group]])
        if len(self.reward) > MOST:
            oldest = self.group[len(self.reward) - MOST]
            kept = self.group > oldest  # whole groups
            self.included, self.reward, self.group = self.included[kept], self.reward[kept], self.group[kept]
            self.query = self.query[kept]

    def _place(self, query: BoolArray) -> int:
        """The index of a query among the distinct ones, to which it is added if it is new."""
        if not len(self.features):
            self.features = np.zeros((0, len(query)), dtype=np.bool_)
        same = np.flatnonzero((self.features == query).all(axis=1))
        if not len(same):
            self.features = np.vstack([self.features, query])
        return int(same[0]) if len(same) else len(self.features) - 1

    def sums(self) -> QuerySums:
        return query_sums(
            self.included.astype(np.float64), self.reward, self.group, self.query, self.features.astype(np.float64)
        )

    def state_dict(self) -> dict[str, Any]:
        return {
            "told": self.included.copy(),
            "reward": self.reward.copy(),
            "group": self.group.copy(),
            "query": self.query.copy(),
            "features": self.features.copy(),
        }

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Self:
        return cls(
            np.array(state["told"], dtype=np.bool_),
            np.array(state["reward"], dtype=np.float64),
            np.array(state["group"], dtype=np.int64),
            np.array(state["query"], dtype=np.int64),
            np.array(state["features"], dtype=np.bool_),
        )
