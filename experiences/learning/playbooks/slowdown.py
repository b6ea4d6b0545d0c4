"""Comparison of the durations of executions before and after a playbook changed. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

LEAST: Final = 10  # executions on each side
SURELY: Final = 0.75  # chance that an execution since then is slower than one before: half of them by no cause


@dataclass(frozen=True, slots=True)
class Slowdown:
    """Medians in milliseconds."""

    before_ms: float
    since_ms: float

    @property
    def factor(self) -> float:
        return self.since_ms / self.before_ms


def slowdown(before: Sequence[float], since: Sequence[float], *, factor: float) -> Slowdown | None:
    """The slowdown; None with fewer than ``LEAST`` executions on a side, if the median rose by less than ``factor``, or
    if the samples overlap so much that chance explains it (Mann and Whitney's share of pairs, ties half)."""
    if min(len(before), len(since)) < LEAST:
        return None
    found = Slowdown(median(before), median(since))
    ordered = sorted(before)
    pairs = sum(bisect_left(ordered, one) + bisect_right(ordered, one) for one in since) / 2
    return found if found.factor >= factor and pairs / (len(before) * len(since)) >= SURELY else None
