"""Queries as short vectors: the features in rules that earlier releases shipped, by latent semantic analysis.

Terms are weighted by how rare they are, along a few directions (Deerwester et al. 1990). Only hashes of the terms are
kept. New rules use words (``query_words``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np

from training.algorithm.arrays import FloatArray, IntArray
from training.policies.query_words import hashes_of

LEAST: Final = 1e-9


@dataclass(frozen=True)
class QueryVectors:
    """``terms`` (V,) are hashes in rising order, ``rarity`` (V,) their weights, ``directions`` (V, R)."""

    terms: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    rarity: FloatArray = field(default_factory=lambda: np.zeros(0))
    directions: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))

    @property
    def size(self) -> int:
        return int(self.directions.shape[1])

    def of(self, query: str) -> FloatArray:
        """(R,), of length 1; all 0 where the query has no term that is known."""
        return _of_length_one(self._weighted(query) @ self.directions) if len(self.terms) else np.zeros(self.size)

    def all(self, queries: Sequence[str]) -> FloatArray:
        """(n, R)."""
        return np.array([self.of(query) for query in queries]).reshape(len(queries), self.size)

    def _weighted(self, query: str) -> FloatArray:
        """The query's weighted terms (V,), of length 1."""
        wanted = np.array(sorted(hashes_of(query)), dtype=np.int64)
        weights = np.zeros(len(self.terms))
        at = np.searchsorted(self.terms, wanted)
        at = at[(at < len(self.terms)) & (self.terms[np.minimum(at, len(self.terms) - 1)] == wanted)]
        weights[at] = self.rarity[at]
        return _of_length_one(weights)

    def state_dict(self) -> dict[str, Any]:
        return {"terms": self.terms.copy(), "rarity": self.rarity.copy(), "directions": self.directions.copy()}

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Self:
        return cls(np.array(state["terms"], dtype=np.int64), np.array(state["rarity"]), np.array(state["directions"]))


def _of_length_one(values: FloatArray) -> FloatArray:
    length = float(np.linalg.norm(values))
    return values / length if length > LEAST else np.zeros_like(values)
