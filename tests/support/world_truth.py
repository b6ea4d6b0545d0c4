"""The possible gain in a world: computed from its probabilities, never sampled."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from statistics import fmean
from typing import Final

from tests.support.world import Advice, Asked, World, tokens_in

PROMPT: Final = 40  # tokens of a prompt without lessons
MOST: Final = 6  # pieces of advice of which every combination is tried


@dataclass(frozen=True)
class Attainable:
    """Mean success over some queries: ``base`` with an empty context, ``best`` when each query has its best
    advice, ``fixed`` when all have the one set that is best for all together (a local search)."""

    base: float
    best: float
    fixed: float

    @property
    def gain(self) -> float:
        return self.best - self.base

    @property
    def fixed_gain(self) -> float:
        return self.fixed - self.base


def attainable(world: World, queries: Iterable[str], *, fixed: bool = True) -> Attainable:
    """``fixed`` False leaves the search for the one set out (NaN), which takes seconds in large worlds."""
    truth = Truth(world)
    asked = [found for query in queries for found in world.find(query)]
    return Attainable(
        base=fmean(truth.success(one, ()) for one in asked),
        best=fmean(truth.best(one) for one in asked),
        fixed=max(truth.climbed(asked, frozenset(start)) for start in ((), world.helpful)) if fixed else math.nan,
    )


class Truth:
    """The success of queries with pieces of advice in their context, each in one sentence."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.tokens = {one: tokens_in(world.lesson(one, world.kinds[0], random.Random(0))) for one in world.helpful}

    def success(self, asked: Asked, advice: Collection[Advice]) -> float:
        return self.world.chance(asked, advice, PROMPT + sum(self.tokens[one] for one in advice))

    def best(self, asked: Asked) -> float:
        """With the best of all advice; where that is much, by a local search."""
        needed = self.world.needed(asked.kind)
        if len(needed) > MOST:
            return self.climbed([asked], frozenset(needed))
        return max(self.success(asked, some) for some in subsets(needed))

    def mean(self, asked: Sequence[Asked], advice: Collection[Advice]) -> float:
        return fmean(self.success(one, advice) for one in asked)

    def climbed(self, asked: Sequence[Asked], chosen: frozenset[Advice]) -> float:
        """The best mean that is reached from a set by adding or removing one piece at a time."""
        value = self.mean(asked, chosen)
        while near := [chosen ^ {piece} for piece in self.world.helpful]:
            better = max(near, key=lambda one: self.mean(asked, one))
            if (found := self.mean(asked, better)) <= value + 1e-9:
                break
            value, chosen = found, better
        return value


def subsets(advice: Sequence[Advice]) -> Iterable[tuple[Advice, ...]]:
    assert len(advice) <= MOST
    return chain.from_iterable(combinations(advice, size) for size in range(len(advice) + 1))
