"""Words of queries as features: which of the words that distinguish the training queries occur in a query.

Numbers and single letters are replaced by their kind first, as for action policies. Words that always occur together
are one feature. A label of a training query ("which kind of request is it?") counts as one more of its words. Only
hashes are kept of words, labels and queries.
"""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Self

import numpy as np

from experiences.learning.lessons.attempts import task_text
from training.algorithm.arrays import BoolArray, FloatArray, IntArray
from training.policies.features import tokenize

MOST_FEATURES: Final = 500
_CONDITION = re.compile(r"\s*when\b(.*?)[,.:]", re.I | re.S)


def _none() -> IntArray:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class QueryWords:
    """``terms`` (V,) are hashes in rising order, ``feature`` (V,) the feature of each, ``share`` (F,) the share of the
    training queries in which each feature occurs. ``sorted_queries`` (S,) are the hashes of queries whose kind is
    known, in rising order, and ``kinds`` (S,) the hashes of their labels."""

    terms: IntArray = field(default_factory=_none)
    feature: IntArray = field(default_factory=_none)
    share: FloatArray = field(default_factory=lambda: np.zeros(0))
    sorted_queries: IntArray = field(default_factory=_none)
    kinds: IntArray = field(default_factory=_none)

    @classmethod
    def fitted(cls, queries: Sequence[str], labels: Sequence[str] = ()) -> Self:
        """From the training queries: terms of at least two of them and not of all, the most frequent first.
        ``labels`` are their kinds ("": not known), which come before all words."""
        found: dict[int, list[int]] = defaultdict(list)
        kind_of = {at: hash_of_kind(label) for at, label in enumerate(labels) if label}
        for at, query in enumerate(queries):
            for term in hashes_of(query) | ({kind_of[at]} if at in kind_of else set()):
                found[term].append(at)
        together: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for term, places in sorted(found.items()):
            if 2 <= len(places) < len(queries):
                together[tuple(places)].append(term)
        named = set(kind_of.values())
        kept = sorted(together.items(), key=lambda one: (named.isdisjoint(one[1]), -len(one[0]), one[1]))
        pairs = sorted((term, at) for at, (_, terms) in enumerate(kept[:MOST_FEATURES]) for term in terms)
        known = {name: kind for at, kind in kind_of.items() for name in _names(queries[at])}
        return cls(
            np.array([term for term, _ in pairs], dtype=np.int64),
            np.array([at for _, at in pairs], dtype=np.int64),
            np.array([len(places) / len(queries) for places, _ in kept[:MOST_FEATURES]], dtype=np.float64),
            np.array(sorted(known), dtype=np.int64),
            np.array([known[name] for name in sorted(known)], dtype=np.int64),
        )

    @property
    def size(self) -> int:
        return len(self.share)

    @cached_property
    def of_kinds(self) -> BoolArray:
        """(F,): which features are kinds."""
        found = np.zeros(self.size, dtype=np.bool_)
        found[self.feature[np.isin(self.terms, self.kinds)]] = True
        return found

    def of(self, text: str) -> FloatArray:
        """(F,): 1 where a word of the feature occurs in the text, else 0. Kinds of a query whose own is not known count
        by their share."""
        return self.with_kind(self._marked(hashes_of(text)), hash_of(text))

    def all(self, queries: Sequence[str]) -> FloatArray:
        """(n, F)."""
        return np.array([self.of(query) for query in queries]).reshape(len(queries), self.size)

    def with_kind(self, found: FloatArray, query: int) -> FloatArray:
        """Features (F,) by words, and by the kind of the query with this hash."""
        kind = self._kind(query)
        if kind is not None:
            return np.maximum(np.where(self.of_kinds, 0.0, found), self._marked({kind}))
        return found if found[self.of_kinds].any() else np.where(self.of_kinds, self.share, found)

    def named(self, lessons: Sequence[str]) -> FloatArray:
        """(n, F): 1 where a word of the feature occurs in the condition of a lesson ("When ...,"), else 0."""
        conditions = [hit[1] if (hit := _CONDITION.match(text)) else text for text in lessons]
        return self.words_in(conditions)

    def words_in(self, texts: Sequence[str]) -> FloatArray:
        """(n, F): 1 where a word of the feature occurs in a text, else 0. No kinds."""
        return np.array([self._marked(hashes_of(text)) for text in texts]).reshape(len(texts), self.size)

    def alike(self, queries: Sequence[str]) -> FloatArray:
        """(n, F): 1 for the kind of a query, where that is known, else 0."""
        kinds = [self._kind(hash_of(query)) for query in queries]
        marks = [self._marked(set() if kind is None else {kind}) for kind in kinds]
        return np.array(marks).reshape(len(queries), self.size)

    def terms_of(self, feature: int) -> list[int]:
        """The hashes of a feature's words."""
        return [int(term) for term in self.terms[self.feature == feature]]

    def translated(self, found: FloatArray, other: QueryWords) -> FloatArray:
        """(F,): the features of a query of which ``other`` knows ``found``. Words that were no feature there count as
        missing."""
        return self._marked(set(other.terms[found[other.feature] == 1.0].tolist()))

    def _marked(self, terms: set[int]) -> FloatArray:
        found = np.zeros(self.size)
        found[self.feature[np.isin(self.terms, np.array(sorted(terms), dtype=np.int64))]] = 1.0
        return found

    def _kind(self, query: int) -> int | None:
        at = int(np.searchsorted(self.sorted_queries, query))
        return int(self.kinds[at]) if at < len(self.kinds) and self.sorted_queries[at] == query else None

    def state_dict(self) -> dict[str, Any]:
        found = {"terms": self.terms.copy(), "feature": self.feature.copy(), "share": self.share.copy()}
        if len(self.kinds):
            found |= {"sorted_queries": self.sorted_queries.copy(), "kinds": self.kinds.copy()}
        return found

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Self:
        return cls(
            np.array(state["terms"], dtype=np.int64),
            np.array(state["feature"], dtype=np.int64),
            np.array(state["share"], dtype=np.float64),
            np.array(state.get("sorted_queries", ()), dtype=np.int64),
            np.array(state.get("kinds", ()), dtype=np.int64),
        )


def hash_of(text: str) -> int:
    """The hash of a word, of a label or of a query."""
    return zlib.crc32(text.encode("utf-8", "replace"))


def hash_of_kind(label: str) -> int:
    """The hash of a label, which no word of a query has."""
    return hash_of(f"kind: {label}")


def _names(query: str) -> set[int]:
    """Hashes of a query as data has it, and as the lessons that it taught have it."""
    return {hash_of(query), hash_of(task_text(query))}


def hashes_of(text: str) -> set[int]:
    """Hashes of the words of a text."""
    return set(words_by_hash(text))


def words_by_hash(text: str) -> dict[int, str]:
    """The words of a text in reading order, by their hashes."""
    return {hash_of(token): token for token in tokenize(text)}
