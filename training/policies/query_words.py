"""Words of queries as features: which of the words that distinguish the training queries occur in a query.

Numbers and single letters are replaced by their kind first, as for action policies. Words that always occur together
are one feature. Only hashes of the words are kept. No model and no endpoint is asked.
"""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np

from training.algorithm.arrays import FloatArray, IntArray
from training.policies.features import tokenize

MOST_FEATURES: Final = 500
_CONDITION = re.compile(r"\s*when\b(.*?)[,.:]", re.I | re.S)


@dataclass(frozen=True)
class QueryWords:
    """``terms`` (V,) are hashes in rising order, ``feature`` (V,) the feature of each, ``share`` (F,) the share of the
    training queries in which each feature occurs."""

    terms: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    feature: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    share: FloatArray = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def fitted(cls, queries: Sequence[str]) -> Self:
        """From the training queries: terms of at least two of them and not of all, the most frequent first."""
        found: dict[int, list[int]] = defaultdict(list)
        for at, query in enumerate(queries):
            for term in hashes_of(query):
                found[term].append(at)
        together: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for term, places in sorted(found.items()):
            if 2 <= len(places) < len(queries):
                together[tuple(places)].append(term)
        kept = sorted(together.items(), key=lambda one: (-len(one[0]), one[1]))[:MOST_FEATURES]
        pairs = sorted((term, at) for at, (_, terms) in enumerate(kept) for term in terms)
        return cls(
            np.array([term for term, _ in pairs], dtype=np.int64),
            np.array([at for _, at in pairs], dtype=np.int64),
            np.array([len(places) / len(queries) for places, _ in kept], dtype=np.float64),
        )

    @property
    def size(self) -> int:
        return len(self.share)

    def of(self, text: str) -> FloatArray:
        """(F,): 1 where a word of the feature occurs in the text, else 0."""
        wanted = np.array(sorted(hashes_of(text)), dtype=np.int64)
        found = np.zeros(self.size)
        found[self.feature[np.isin(self.terms, wanted)]] = 1.0
        return found

    def all(self, queries: Sequence[str]) -> FloatArray:
        """(n, F)."""
        return np.array([self.of(query) for query in queries]).reshape(len(queries), self.size)

    def named(self, lessons: Sequence[str]) -> FloatArray:
        """(n, F): 1 where a word of the feature occurs in the condition of a lesson ("When ...,"), else 0."""
        return self.all([hit[1] if (hit := _CONDITION.match(text)) else text for text in lessons])

    def terms_of(self, feature: int) -> list[int]:
        """The hashes of a feature's words."""
        return [int(term) for term in self.terms[self.feature == feature]]

    def state_dict(self) -> dict[str, Any]:
        return {"terms": self.terms.copy(), "feature": self.feature.copy(), "share": self.share.copy()}

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Self:
        return cls(
            np.array(state["terms"], dtype=np.int64),
            np.array(state["feature"], dtype=np.int64),
            np.array(state["share"], dtype=np.float64),
        )


def hashes_of(text: str) -> set[int]:
    """Hashes of the words of a text."""
    return set(words_by_hash(text))


def words_by_hash(text: str) -> dict[int, str]:
    """The words of a text in reading order, by their hashes."""
    return {zlib.crc32(token.encode("utf-8", "replace")): token for token in tokenize(text)}
