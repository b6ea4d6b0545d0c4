"""Text to sparse features by signed hashing (Weinberger et al. 2009), exactly rebuildable from a stored step.

Tokens carry a namespace: ``q`` the question at the start, ``e`` the question while the last observation is an
unevaluated expression, ``o`` the last observation, ``h`` what was tried, and one bias. CRC-32 is used because
Python's own ``hash`` differs from process to process. TOOL-ROUTER 5 has the recipe and what each part is worth.
"""

from __future__ import annotations

import math
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from experiences.types import Observation
from training.algorithm.arrays import FloatArray, IntArray

OBSERVED_CHARACTERS = 80  # of the last observation; the rest seldom tells which tool comes next
_CACHE_LIMIT = 50_000  # encodings; a full cache is emptied, which changes speed and nothing else

STATUSES = ("ok", "err", "no", "other")  # what a history tag "<action>#<status>" may say; unknown ones are "other"

_TOKEN = re.compile(r"0[xX][0-9a-fA-F]+|\d+\.\d+|\d+|[^\W\d_]+|[^\w\s]")
_EXPRESSION = re.compile(r"\d\)*\s*(?:[*+^|%]|&|<<|>>)\s*[(~+-]*\s*\d|\d\)*\s+[-/]\s+[(~-]*\d")

TokenStyle = Literal["shape", "raw"]


@dataclass(frozen=True, slots=True)
class FeatureOptions:
    """See ``training.config.FeatureConfig`` for what each does to learning."""

    bits: int = 13
    bigrams: bool = False
    min_df: int = 3
    tokens: TokenStyle = "shape"
    phase_gate: bool = True
    own_history: bool = True


class Encoding(NamedTuple):
    """Sparse features of one observation: distinct hashed ``ids`` (n,) and their ``values`` (n,)."""

    ids: IntArray
    values: FloatArray


def tokenize(text: str, style: TokenStyle = "shape") -> list[str]:
    """Tokens in reading order. Style ``shape`` replaces numbers by their kind and single letters by ``<char>``,
    so that what is learned does not hang on particular values; a word in capitals also gives ``<CAPS>``."""
    found = _TOKEN.findall(text)
    if style == "raw":
        return [token.lower() for token in found]
    tokens = []
    for token in found:
        tokens.append(_shape(token))
        if len(token) > 1 and token.isupper():
            tokens.append("<CAPS>")
    return tokens


def is_expression(text: str) -> bool:
    """Whether a text looks like arithmetic that nobody has evaluated yet ("3*4 + 2"). A lone fraction or a date
    is a result."""
    return _EXPRESSION.search(text) is not None


class TextEncoder:
    """Observations to ``Encoding``s, cached. ``vocabulary`` holds the query terms that are used; all others are
    dropped, so that names and other one-off words of the training questions can't be learned by heart."""

    def __init__(self, options: FeatureOptions, vocabulary: Iterable[str]) -> None:
        self.options = options
        self.vocabulary = frozenset(vocabulary)
        self._mask = (1 << options.bits) - 1
        self._slots: dict[str, tuple[int, float]] = {}
        self._queries: dict[str, dict[str, list[tuple[int, float]]]] = {}
        self._observed: dict[str, list[tuple[int, float]]] = {}
        self._encodings: dict[tuple[str, str, tuple[str, ...]], Encoding] = {}

    @classmethod
    def fitted(cls, options: FeatureOptions, queries: Sequence[str]) -> TextEncoder:
        """Keeps the terms that occur in at least ``min_df`` of the training queries. Uses no labels."""
        seen: Counter[str] = Counter()
        for query in queries:
            seen.update(query_terms(query, options))
        return cls(options, (term for term, count in seen.items() if count >= options.min_df))

    def encode(self, observation: Observation) -> Encoding:
        """Features of what the agent sees. Depends on query, last observation and history, not on the mask."""
        key = (observation.query, observation.last, observation.done)
        encoding = self._encodings.get(key)
        if encoding is None:
            if len(self._encodings) >= _CACHE_LIMIT:
                self._encodings.clear()
            encoding = self._encodings[key] = self._encode(observation)
        return encoding

    def query_features(self, query: str) -> list[tuple[int, float]]:
        """(hashed id, signed weight) of the query's terms in the start namespace."""
        return self._query(query, "q")

    def _encode(self, observation: Observation) -> Encoding:
        total: dict[int, float] = {}
        pairs = self._observation(observation.last) + [self._slot(f"h|{tag}") for tag in observation.done]
        namespace = self._phase(observation.last)
        if namespace:
            pairs = pairs + self._query(observation.query, namespace)
        for slot, value in [*pairs, self._slot("bias")]:
            total[slot] = total.get(slot, 0.0) + value
        return Encoding(np.array(list(total), dtype=np.int64), np.array(list(total.values()), dtype=np.float64))

    def _phase(self, last: str) -> str:
        """The namespace of the question's words; "" leaves them out. The gate is a designer's prior: once a
        plain result is there, the question no longer decides what to do next."""
        if not self.options.phase_gate or not last:
            return "q"
        return "e" if is_expression(last[:OBSERVED_CHARACTERS]) else ""

    def _query(self, query: str, namespace: str) -> list[tuple[int, float]]:
        by_namespace = self._queries.setdefault(query, {})
        found = by_namespace.get(namespace)
        if found is None:
            terms = [term for term in query_terms(query, self.options) if term in self.vocabulary]
            found = by_namespace[namespace] = self._weighted(namespace, terms)
            if len(self._queries) > _CACHE_LIMIT:
                self._queries.clear()
        return found

    def _observation(self, last: str) -> list[tuple[int, float]]:
        found = self._observed.get(last)
        if found is None:
            if len(self._observed) >= _CACHE_LIMIT:
                self._observed.clear()
            tokens = dict.fromkeys(tokenize(last[:OBSERVED_CHARACTERS], self.options.tokens))
            found = self._observed[last] = self._weighted("o", list(tokens))
        return found

    def _weighted(self, namespace: str, terms: Sequence[str]) -> list[tuple[int, float]]:
        weight = 1.0 / math.sqrt(len(terms)) if terms else 0.0
        slots = (self._slot(f"{namespace}|{term}") for term in terms)
        return [(slot, sign * weight) for slot, sign in slots]

    def _slot(self, name: str) -> tuple[int, float]:
        found = self._slots.get(name)
        if found is None:
            code = zlib.crc32(name.encode())
            found = self._slots[name] = (code & self._mask, -1.0 if code >> 31 else 1.0)
        return found


def own_history(done: Sequence[str], actions: Mapping[str, int]) -> FloatArray:
    """1 where the history says that this very action was done with that status: (len(STATUSES), A)."""
    table = np.zeros((len(STATUSES), len(actions)))
    for tag in done:
        name, _, status = tag.rpartition("#")
        if name in actions:
            table[STATUSES.index(status) if status in STATUSES else -1, actions[name]] = 1.0
    return table


def query_terms(query: str, options: FeatureOptions) -> list[str]:
    """Distinct terms of a query in order of first appearance: tokens, and pairs of neighbours with ``bigrams``."""
    tokens = tokenize(query, options.tokens)
    terms = list(tokens)
    if options.bigrams:
        terms += [f"{a} {b}" for a, b in pairwise(tokens)]
    return list(dict.fromkeys(terms))


def _shape(token: str) -> str:
    if token[0].isdigit():
        if token[:2] in ("0x", "0X"):
            return "<hex>"
        return "<float>" if "." in token else "<int>"
    return "<char>" if len(token) == 1 and token.isalpha() else token.lower()
