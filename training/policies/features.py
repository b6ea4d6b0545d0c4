"""Text to sparse features by signed hashing (Weinberger et al. 2009), exactly rebuildable from a stored step.

Tokens carry a namespace: ``q`` the question at the start, ``e`` the question while the last observation is an
unevaluated expression, ``o`` the last observation, ``h`` what was tried, and one bias. CRC-32 is used because
Python's own ``hash`` differs from process to process. docs/algorithms.md#features has the recipe.
"""

from __future__ import annotations

import math
import re
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from experiences.rollouts.types import Observation
from training.algorithm.arrays import FloatArray, IntArray

OBSERVED_CHARACTERS = 80  # of the last observation; the rest seldom helps to choose the next tool
_CACHE_LIMIT = 50_000  # entries of each cache

STATUSES = ("ok", "err", "no", "other")  # what a history tag "<action>#<status>" may say; unknown ones are "other"

_TOKEN = re.compile(r"0[xX][0-9a-fA-F]+|\d+\.\d+|\d+|[^\W\d_]+|[^\w\s]")
_EXPRESSION = re.compile(r"\d\)*\s*(?:[*+^|%]|&|<<|>>)\s*[(~+-]*\s*\d|\d\)*\s+[-/]\s+[(~-]*\d")

TokenStyle = Literal["shape", "raw"]
K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class FeatureOptions:
    """See ``training.schema_sections.FeatureConfig`` for what each does to learning."""

    bits: int = 13
    bigrams: bool = False
    min_df: int = 3
    tokens: TokenStyle = "shape"
    phase_gate: bool = True
    own_history: bool = True


class Encoding(NamedTuple):
    """Sparse features of one observation: distinct hashed ``ids`` (n,) and their ``values`` (n,). ``evidence`` (n,)
    is how characteristic each is of the kind of question: it sums to 1 over the question's terms, rare ones
    weighing more, and is 0 for all other features (and everywhere while the question's terms are left out)."""

    ids: IntArray
    values: FloatArray
    evidence: FloatArray


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
    """Whether a text looks like arithmetic that is not evaluated yet ("3*4 + 2"). A lone fraction or a date
    is a result."""
    return _EXPRESSION.search(text) is not None


class _Feature(NamedTuple):
    slot: int
    value: float
    evidence: float


class TextEncoder:
    """Observations to ``Encoding``s, cached.

    ``vocabulary`` holds the query terms that are used and in how many of the ``documents`` training queries each
    occurs. All other terms are dropped, so that names and other one-off words can't be learned by heart.
    """

    def __init__(self, options: FeatureOptions, vocabulary: Mapping[str, int], documents: int) -> None:
        self.options = options
        self.vocabulary = dict(vocabulary)
        self.documents = documents
        self._mask = (1 << options.bits) - 1
        self._slots: dict[str, tuple[int, float]] = {}
        self._queries: dict[tuple[str, str], list[_Feature]] = {}
        self._observed: dict[str, list[_Feature]] = {}
        self._encodings: dict[tuple[str, str, tuple[str, ...]], Encoding] = {}

    @classmethod
    def fitted(cls, options: FeatureOptions, queries: Sequence[str]) -> TextEncoder:
        """Keeps the terms that occur in at least ``min_df`` of the training queries. Uses no labels."""
        seen: Counter[str] = Counter()
        for query in queries:
            seen.update(query_terms(query, options))
        kept = {term: count for term, count in sorted(seen.items()) if count >= options.min_df}
        return cls(options, kept, len(queries))

    def encode(self, observation: Observation) -> Encoding:
        """Features of what the agent sees. Depends on query, last observation and history, not on the mask."""
        key = (observation.query, observation.last, observation.done)
        encoding = self._encodings.get(key)
        if encoding is None:
            encoding = _remember(self._encodings, key, self._encode(observation))
        return encoding

    def _encode(self, observation: Observation) -> Encoding:
        values: dict[int, float] = {}
        evidence: dict[int, float] = {}
        features = [*self._observation(observation.last), *(self._feature(f"h|{tag}") for tag in observation.done)]
        namespace = self._phase(observation.last)
        if namespace:
            features += self._query(observation.query, namespace)
        for slot, value, weight in (*features, self._feature("bias")):
            values[slot] = values.get(slot, 0.0) + value
            evidence[slot] = evidence.get(slot, 0.0) + weight
        return Encoding(*(np.array(list(column)) for column in (values, values.values(), evidence.values())))

    def _phase(self, last: str) -> str:
        """The namespace of the question's words; "" leaves them out. The gate is a designer's prior: once a
        plain result is there, the question no longer decides what to do next."""
        if not self.options.phase_gate or not last:
            return "q"
        return "e" if is_expression(last[:OBSERVED_CHARACTERS]) else ""

    def _query(self, query: str, namespace: str) -> list[_Feature]:
        found = self._queries.get((query, namespace))
        if found is None:
            terms = [term for term in query_terms(query, self.options) if term in self.vocabulary]
            features = self._weighted(namespace, terms, self._evidence(terms))
            found = _remember(self._queries, (query, namespace), features)
        return found

    def _evidence(self, terms: Sequence[str]) -> list[float]:
        """Shares of the terms, proportional to log(questions / questions with the term)."""
        rarity = [math.log(self.documents / self.vocabulary[term]) for term in terms]
        total = sum(rarity)
        return [r / total for r in rarity] if total > 0 else [1.0 / len(terms) for _ in terms]

    def _observation(self, last: str) -> list[_Feature]:
        found = self._observed.get(last)
        if found is None:
            tokens = list(dict.fromkeys(tokenize(last[:OBSERVED_CHARACTERS], self.options.tokens)))
            found = _remember(self._observed, last, self._weighted("o", tokens, [0.0] * len(tokens)))
        return found

    def _weighted(self, namespace: str, terms: Sequence[str], evidence: Sequence[float]) -> list[_Feature]:
        value = 1.0 / math.sqrt(len(terms)) if terms else 0.0
        return [self._feature(f"{namespace}|{term}", value, e) for term, e in zip(terms, evidence, strict=True)]

    def _feature(self, name: str, value: float = 1.0, evidence: float = 0.0) -> _Feature:
        found = self._slots.get(name)
        if found is None:
            code = zlib.crc32(name.encode())
            found = self._slots[name] = (code & self._mask, -1.0 if code >> 31 else 1.0)
        slot, sign = found
        return _Feature(slot, sign * value, evidence)


def own_history(done: Sequence[str], actions: Mapping[str, int]) -> FloatArray:
    """1 where the history says that this very action was done with that status: (len(STATUSES), A)."""
    table = np.zeros((len(STATUSES), len(actions)))
    for tag in done:
        name, _, status = tag.rpartition("#")
        if name in actions:
            table[STATUSES.index(status) if status in STATUSES else -1, actions[name]] = 1.0
    return table


def _remember(cache: dict[K, V], key: K, value: V) -> V:
    """Caches and returns ``value``; a full cache is emptied, which changes speed and nothing else."""
    if len(cache) >= _CACHE_LIMIT:
        cache.clear()
    cache[key] = value
    return value


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
