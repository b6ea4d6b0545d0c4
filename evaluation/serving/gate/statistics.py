"""Difference of a candidate to the current release, by bounds that hold over all interim analyses together.

Both answer the same queries; the samples of a query are collapsed to their mean, since they are no evidence of their
own. An analysis after ``n`` of ``planned`` queries requires z * sqrt(planned / n); a single analysis at the end would
require z. These are O'Brien and Fleming's bounds (1979). Sums of independent symmetric numbers ever reach a
height with at most twice the probability with which they end above it (Lévy's inequality). So alpha / 2 at the end
is alpha over all analyses. Inverted they are repeated confidence bounds (Jennison and Turnbull 1989): one bound answers
"no worse than by 5 points" and "better" alike. Several candidates share alpha in equal parts (Bonferroni), which holds
under any dependence between them.

Only NumPy and the standard library.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from agentcore_site.lib.statistics import NORMAL
from training.algorithm.arrays import FloatArray
from training.algorithm.inference import per_query
from training.algorithm.sequential import statistics

ALPHA: Final = 0.05
_HALVINGS: Final = 40


class Bounds(NamedTuple):
    """Candidate minus current over ``n`` queries: the mean difference and its bounds, each with error alpha over all
    analyses and candidates (infinite where too few queries speak). ``p_value`` is that of "no better"."""

    difference: float
    low: float
    high: float
    p_value: float
    n: int


@dataclass(frozen=True, slots=True)
class InterimAnalyses:
    """Any number of analyses while ``planned`` queries are answered, of each of ``candidates`` candidates. ``alpha`` is
    the one-sided error over all of them together."""

    planned: int
    candidates: int = 1
    alpha: float = ALPHA

    def __post_init__(self) -> None:
        if self.planned < 1 or self.candidates < 1 or not 0 < self.alpha < 1:
            raise ValueError(f"A comparison needs queries, candidates and an alpha between 0 and 1; got {self}.")

    def critical(self, n: int) -> float:
        """The critical value of the statistic of the first ``n`` queries.

        Raises:
            ValueError: more queries than planned: the error is that of the plan.
        """
        if not 0 < n <= self.planned:
            raise ValueError(f"{self.planned} queries were planned; got {n}.")
        return -NORMAL.inv_cdf(self.alpha / self.candidates / 2) * math.sqrt(self.planned / n)

    def bounds(self, candidate: ArrayLike, current: ArrayLike) -> Bounds:
        """Of scores between 0 and 1 of the same queries, (n,) or (n, k) with k samples each. A query that one of them
        has no score of is left out.

        Raises:
            ValueError: the two have different numbers of queries, none in common, or more than planned.
        """
        a, b = per_query(candidate), per_query(current)
        if len(a) != len(b):
            raise ValueError(f"Both must hold the same queries; got {len(a)} and {len(b)}.")
        d = a - b
        d = d[np.isfinite(d)]
        asked = self.critical(len(d))
        reached = float(statistics(d[None])[0]) * math.sqrt(len(d) / self.planned)
        p_value = min(1.0, 2 * self.candidates * (1 - NORMAL.cdf(reached)))
        return Bounds(float(d.mean()), _lowest(d, asked), -_lowest(-d, asked), p_value, len(d))


def _lowest(d: FloatArray, asked: float) -> float:
    """Above which value the mean is shown to lie: where the statistic of the distances from it is ``asked``."""
    low, high = -2.0, float(d.mean())  # differences of scores lie in [-1, 1]
    if statistics((d - low)[None])[0] < asked:
        return -math.inf
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if statistics((d - middle)[None])[0] >= asked else (low, middle)
    return max(low, -1.0)
