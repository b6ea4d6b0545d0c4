"""Rollouts for estimating effects by the words of a query: inclusions, rewards, and features of queries.

One number a lesson needs sums only (``effects``). How an effect differs between queries is not known beforehand, so the
rollouts themselves are kept, the latest of them. A later run begins with them (``prior_estimates``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np

from training.algorithm.arrays import BoolArray, FloatArray, IntArray, centred
from training.algorithm.relevance import QueryEffects, QuerySums, query_sums
from training.policies.query_words import QueryWords

MOST: Final = 3_000  # rollouts


@dataclass
class RolloutEvidence:
    """Rollouts: the lessons ``included`` (N, K), ``reward`` (N,), ``group`` (N,), ``weight`` (N,), and ``query`` (N,):
    an index of ``features`` (Q, F), the distinct queries by the words that occur in them, and of ``names`` (Q,), their
    hashes."""

    included: BoolArray = field(default_factory=lambda: np.zeros((0, 0), dtype=np.bool_))
    reward: FloatArray = field(default_factory=lambda: np.zeros(0))
    group: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    query: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    features: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    names: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    weight: FloatArray = field(default_factory=lambda: np.zeros(0))

    def grow(self, k: int) -> None:
        """Makes room for ``k`` lessons; these rollouts included none of the new ones."""
        more = k - self.included.shape[1]
        if more > 0:
            self.included = np.pad(self.included, ((0, 0), (0, more)))

    def forget(self, k: int) -> None:
        """Lesson ``k`` has a new text."""
        self.included[:, k] = False

    def learn(
        self, included: BoolArray, reward: FloatArray, group: IntArray, features: FloatArray, names: Sequence[int]
    ) -> None:
        """Takes in further rollouts, with the ``features`` (G, F) and the ``names`` (G,) of the query of each group in
        0, 1, ... Their groups are new ones, also where their numbers are those of groups before."""
        first = int(self.group.max()) + 1 if len(self.group) else 0
        query = np.array([self._place(*one) for one in zip(features, names, strict=True)], dtype=np.int64)
        self.included = np.vstack([self.included, included])
        self.reward = np.concatenate([self.reward, reward])
        self.group = np.concatenate([self.group, first + np.asarray(group, dtype=np.int64)])
        self.query = np.concatenate([self.query, query[group]])
        self.weight = np.concatenate([self.weight, np.ones(len(reward))])
        if len(self.reward) > MOST:
            oldest = self.group[len(self.reward) - MOST]
            kept = self.group > oldest  # whole groups
            self.included, self.reward, self.group = self.included[kept], self.reward[kept], self.group[kept]
            self.query, self.weight = self.query[kept], self.weight[kept]

    def _place(self, features: FloatArray, name: int) -> int:
        """The index of a query among the distinct ones, to which it is added if it is new."""
        if not len(self.features):
            self.features = np.zeros((0, len(features)))
        same = np.flatnonzero(self.names == name)
        if not len(same):
            self.features, self.names = np.vstack([self.features, features]), np.append(self.names, name)
        return int(same[0]) if len(same) else len(self.features) - 1

    def sums(self) -> QuerySums:
        included = self.included.astype(np.float64)
        return query_sums(included, self.reward, self.group, self.query, self.features, self.weight)

    def scatter(self) -> tuple[float, float]:
        """(sum of squares of rewards centred in their groups, its degrees of freedom)."""
        known = np.isfinite(self.reward)
        reward, weight = self.reward[known], self.weight[known]
        _, group, counts = np.unique(self.group[known], return_inverse=True, return_counts=True)
        away = centred(reward[:, None], self.group[known])[:, 0]
        return float(weight @ away**2), float((weight * (1 - 1 / counts[group.reshape(-1)])).sum())

    # -- in a later run --------------------------------------------------------------------------------------------

    def translated(self, before: QueryWords, words: QueryWords) -> Self:
        """The same rollouts, with their queries by other ``words`` than those of ``before``."""
        used, query = np.unique(self.query, return_inverse=True)
        names = self.names[used]
        rows = [
            words.with_kind(words.translated(found, before), int(name))
            for found, name in zip(self.features[used], names, strict=True)
        ]
        features = np.array(rows).reshape(len(rows), words.size)
        return type(self)(self.included, self.reward, self.group, query.reshape(-1), features, names, self.weight)

    def of_lessons(self, places: Sequence[int], known: QueryEffects) -> Self:
        """The same rollouts with these lessons only, in this order. The ``known`` effects of all others are taken off
        the rewards."""
        others = np.setdiff1d(np.arange(self.included.shape[1]), places)
        effects = known.at(self.features)[0][:, others]
        reward = self.reward - (self.included[:, others] * effects[self.query]).sum(axis=1)
        included = self.included[:, list(places)]
        return type(self)(included, reward, self.group, self.query, self.features, self.names, self.weight)

    def weighed(self, weight: float) -> Self:
        """The same rollouts, which count for this share."""
        own = (self.included, self.reward, self.group, self.query, self.features, self.names)
        return type(self)(*own, weight * self.weight)

    def state_dict(self) -> dict[str, Any]:
        return {
            "told": self.included.copy(),
            "reward": self.reward.copy(),
            "group": self.group.copy(),
            "query": self.query.copy(),
            "features": self.features.copy(),
            "names": self.names.copy(),
            "weight": self.weight.copy(),
        }

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Self:
        reward, features = np.array(state["reward"], dtype=np.float64), np.array(state["features"], dtype=np.float64)
        return cls(
            np.array(state["told"], dtype=np.bool_),
            reward,
            np.array(state["group"], dtype=np.int64),
            np.array(state["query"], dtype=np.int64),
            features,
            # Earlier releases stored no names: no query has a hash below 0.
            np.array(state.get("names", -1 - np.arange(len(features))), dtype=np.int64),
            np.array(state.get("weight", np.ones(len(reward))), dtype=np.float64),
        )
