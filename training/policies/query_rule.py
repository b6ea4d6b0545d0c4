"""Choices of lessons: the same for all queries, or for each query those that help with it.

A rule gives a query the lessons whose effect on it is above 0, the best per token first where room is short.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from agentcore_site.lib.statistics import NORMAL
from training.algorithm.relevance import QueryEffects
from training.policies.query_vectors import QueryVectors
from training.policies.query_words import QueryWords

REMEMBERED = 4_096  # queries whose lessons are kept at hand


@dataclass(frozen=True)
class QueryRule:
    """A choice of lessons for any query, fixed once made. ``handles`` and ``tokens`` (both K) are of the lessons that
    it chooses from, ``effects`` what is known of them. ``confidence`` in [.5, 1): a lesson is chosen where its effect
    on the query lies above 0 with more than this probability. ``most_tokens`` bounds the lessons of a query, ``slots``
    (None: no bound) how many lessons, of which those in ``free`` don't count."""

    features: QueryWords | QueryVectors
    handles: tuple[str, ...]
    tokens: tuple[int, ...]
    effects: QueryEffects
    confidence: float = 0.5
    slots: int | None = None
    most_tokens: int = 100_000
    free: frozenset[str] = frozenset()

    def lessons_for(self, query: str) -> tuple[str, ...]:
        """The handles of the query's lessons, in the library's order."""
        found = self._chosen.get(query)
        if found is None:
            if len(self._chosen) >= REMEMBERED:
                self._chosen.clear()
            found = self._chosen[query] = self._choose(query)
        return found

    def lessons_of(self, queries: Sequence[str]) -> tuple[str, ...]:
        """The handles of the lessons of any of the queries, in the library's order."""
        chosen = {handle for query in queries for handle in self.lessons_for(query)}
        return tuple(handle for handle in self.handles if handle in chosen)

    def without(self, gone: Sequence[str]) -> QueryRule:
        """The same rule without some lessons."""
        kept = [at for at, handle in enumerate(self.handles) if handle not in set(gone)]
        effects = QueryEffects(self.effects.mean[kept], self.effects.spread[kept], self.effects.local)
        handles, tokens = tuple(self.handles[at] for at in kept), tuple(self.tokens[at] for at in kept)
        return replace(self, handles=handles, tokens=tokens, effects=effects)

    @cached_property
    def _chosen(self) -> dict[str, tuple[str, ...]]:
        return {}

    def _choose(self, query: str) -> tuple[str, ...]:
        mean, sd = (values[0] for values in self.effects.at(self.features.of(query)[None, :]))
        surely = mean - NORMAL.inv_cdf(self.confidence) * sd
        tokens = np.maximum(np.array(self.tokens, dtype=np.float64), 1.0)
        ranked = sorted(np.flatnonzero(surely > 0), key=lambda at: (-mean[at] / tokens[at], at))
        taken, room = [], float(self.most_tokens)
        places = len(self.handles) if self.slots is None else self.slots
        for at in ranked:
            place = self.handles[at] not in self.free
            if tokens[at] <= room and places >= place:
                taken.append(at)
                room -= tokens[at]
                places -= place
        return tuple(self.handles[at] for at in sorted(taken))

    # -- as stored -------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Arrays and JSON values, flat."""
        return {
            **{f"vectors.{name}": value for name, value in self.features.state_dict().items()},
            "handles": list(self.handles),
            "tokens": list(self.tokens),
            "mean": self.effects.mean.copy(),
            "spread": self.effects.spread.copy(),
            "local": self.effects.local,
            "confidence": self.confidence,
            "slots": self.slots,
            "most_tokens": self.most_tokens,
            "free": sorted(self.free),
        }

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Self:
        vectors = {name.removeprefix("vectors."): value for name, value in state.items() if name.startswith("vectors.")}
        slots, features = state["slots"], QueryVectors if "rarity" in vectors else QueryWords
        spread = state["covariance"] if "covariance" in state else state["spread"]  # as earlier releases named it
        return cls(
            features.from_state_dict(vectors),
            tuple(state["handles"]),
            tuple(int(n) for n in state["tokens"]),
            QueryEffects(np.array(state["mean"]), np.array(spread), float(state["local"])),
            float(state["confidence"]),
            None if slots is None else int(slots),
            int(state["most_tokens"]),
            frozenset(state["free"]),
        )

    def as_json(self) -> dict[str, Any]:
        """The same in JSON, rounded to what matters (1e-5 of a reward)."""
        return {name: _as_json(value) for name, value in self.state_dict().items()}

    def as_stored(self) -> Self:
        """The rule as it is read back from JSON. Only such a rule is tried, so that what was measured is what is
        served."""
        return self.from_state_dict(self.as_json())


def _as_json(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist() if value.dtype.kind == "i" else np.round(value, 5).tolist()
    return value


def same_for_all(rule: QueryRule, queries: Sequence[str]) -> bool:
    """Whether the rule gives all of these queries the same lessons."""
    return len({rule.lessons_for(query) for query in queries}) < 2


@dataclass(frozen=True)
class Choice:
    """A choice of lessons for an agent's context: ``handles`` are all of them, in the library's order. Every query gets
    them all; where there is a ``rule``, a query gets the lessons that the rule names for it, and those that the rule
    does not know."""

    handles: tuple[str, ...] = ()
    rule: QueryRule | None = None

    def handles_for(self, query: str) -> tuple[str, ...]:
        """The handles in this query's context."""
        if self.rule is None:
            return self.handles
        named, known = set(self.rule.lessons_for(query)), set(self.rule.handles)
        return tuple(handle for handle in self.handles if handle in named or handle not in known)
