"""Queries as short vectors, so that queries alike are near each other: latent semantic analysis of training queries.

Terms are weighted by how rare they are, and a singular value decomposition keeps the few directions in which the
queries differ most (Deerwester et al. 1990). Numbers and single letters are replaced by their kind first, as for action
policies. Only hashes of the terms are kept. No model and no endpoint is asked.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np

from training.algorithm.arrays import FloatArray, IntArray
from training.policies.features import tokenize

SIZE: Final = 16  # directions: 32 find a little more where there are as many kinds of queries, for ten times the work
MOST_TERMS: Final = 2_000
LEAST: Final = 1e-9


@dataclass(frozen=True)
class QueryVectors:
    """``terms`` (V,) are hashes in rising order, ``rarity`` (V,) their weights, ``directions`` (V, R)."""

    terms: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    rarity: FloatArray = field(default_factory=lambda: np.zeros(0))
    directions: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))

    @classmethod
    def fitted(cls, queries: Sequence[str], size: int = SIZE) -> Self:
        """From the training queries, with terms of at least two of them and not of all. No labels are used. Of queries
        that share nothing nothing is kept: all have the vector 0."""
        found = Counter(term for query in queries for term in set(_terms(query)))
        shared = [(term, n) for term, n in found.items() if 2 <= n < len(queries)]
        kept = sorted(term for term, _ in sorted(shared, key=lambda one: (-one[1], one[0]))[:MOST_TERMS])
        if not kept:
            return cls()
        terms = np.array(kept, dtype=np.int64)
        rarity = np.array([math.log(len(queries) / found[term]) for term in kept])
        whole = cls(terms, rarity, np.eye(len(kept)))
        rows = np.array([whole._weighted(query) for query in queries])
        _, values, directions = np.linalg.svd(rows, full_matrices=False)
        r = min(size, int((values > LEAST * max(values[0], 1.0)).sum()))
        # Each direction counts alike: what queries are about is often said in one word, and how in many.
        # Laid out as it is read back from a checkpoint: sums in another order would differ in the last bit.
        return cls(terms, rarity, np.ascontiguousarray(directions[:r].T / values[:r]))

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
        wanted = np.array(sorted(set(_terms(query))), dtype=np.int64)
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


def _terms(query: str) -> list[int]:
    return [zlib.crc32(token.encode("utf-8", "replace")) for token in tokenize(query)]


def _of_length_one(values: FloatArray) -> FloatArray:
    length = float(np.linalg.norm(values))
    return values / length if length > LEAST else np.zeros_like(values)
