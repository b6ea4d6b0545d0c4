"""Statistics of evaluations (ALGORITHMS 6): pure, with SciPy where it has the test, imported when first needed.

Intervals and the paired comparison that training needs as well stand in ``training.algorithm.inference``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from training.algorithm.arrays import FloatArray
from training.algorithm.inference import NORMAL, PairedDifference, paired_difference, per_query, wilson_interval

__all__ = [
    "McNemar",
    "PairedDifference",
    "benjamini_hochberg",
    "cohens_d",
    "cohens_h",
    "holm",
    "mcnemar",
    "minimum_detectable_effect",
    "paired_difference",
    "pass_at_k",
    "per_query",
    "power_of_paired_test",
    "wilson_interval",
]


class McNemar(NamedTuple):
    """``gained`` queries went from wrong to right, ``lost`` the other way; two-sided p-values."""

    gained: int
    lost: int
    p_value: float
    mid_p: float


def mcnemar(baseline: ArrayLike, trained: ArrayLike) -> McNemar:
    """McNemar's exact test of one sample per query; mid-p is less conservative (Fagerland et al. 2013).

    Raises:
        ValueError: the arms have different numbers of queries.
    """
    a, b = np.asarray(baseline, dtype=bool), np.asarray(trained, dtype=bool)
    if a.shape != b.shape:
        raise ValueError(f"The arms must hold the same queries; got {a.size} and {b.size}.")
    gained, lost = int(np.sum(~a & b)), int(np.sum(a & ~b))
    n = gained + lost
    if n == 0:
        return McNemar(0, 0, 1.0, 1.0)
    from scipy.stats import binom, binomtest

    p = float(binomtest(gained, n, 0.5).pvalue)
    return McNemar(gained, lost, p, max(0.0, p - float(binom.pmf(gained, n, 0.5))))


def holm(p_values: Sequence[float]) -> FloatArray:
    """Holm's step-down adjusted p-values: they control the family-wise error rate (Holm 1979)."""
    p = np.asarray(p_values, dtype=np.float64)
    n = len(p)
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * (n - np.arange(n)))
    adjusted = np.empty(n)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted


def benjamini_hochberg(p_values: Sequence[float]) -> FloatArray:
    """Adjusted p-values that control the false discovery rate (Benjamini & Hochberg 1995)."""
    p = np.asarray(p_values, dtype=np.float64)
    n = len(p)
    order = np.argsort(p, kind="stable")[::-1]
    stepped = np.minimum.accumulate(p[order] * n / np.arange(n, 0, -1))
    adjusted = np.empty(n)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted


def cohens_d(differences: ArrayLike) -> float:
    """Mean over standard deviation of paired differences; 0 where they are all 0, infinite where all are equal."""
    d = np.asarray(differences, dtype=np.float64)
    mean, sd = float(d.mean()), float(np.std(d, ddof=1)) if len(d) > 1 else 0.0
    if sd == 0.0:
        return 0.0 if mean == 0.0 else math.copysign(math.inf, mean)
    return mean / sd


def cohens_h(p: float, q: float) -> float:
    """Effect size of two proportions: 2 arcsin sqrt(p) - 2 arcsin sqrt(q); .2 small, .5 medium, .8 large."""
    return 2 * math.asin(math.sqrt(p)) - 2 * math.asin(math.sqrt(q))


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Chance that at least one of k samples is right, from n of which ``correct`` were: 1 - C(n-c, k) / C(n, k).

    Raises:
        ValueError: k or ``correct`` lies outside 1..n and 0..n.
    """
    if not (1 <= k <= n and 0 <= correct <= n):
        raise ValueError(f"k must lie in 1..{n} and correct in 0..{n}; got k = {k}, correct = {correct}.")
    return 1.0 - math.comb(n - correct, k) / math.comb(n, k)


def minimum_detectable_effect(sd: float, n: int, *, power: float = 0.8, alpha: float = 0.05) -> float:
    """The smallest mean paired difference that n queries can tell: (z_alpha/2 + z_power) sd / sqrt(n), 2.8 sd / sqrt(n)
    by default. Infinite for fewer than two queries."""
    if n < 2:
        return math.inf
    return (NORMAL.inv_cdf(1 - alpha / 2) + NORMAL.inv_cdf(power)) * sd / math.sqrt(n)


def power_of_paired_test(effect: float, sd: float, n: int, *, alpha: float = 0.05) -> float:
    """Power of the two-sided paired test for a mean difference, by the normal approximation."""
    if sd == 0.0:
        return 1.0 if effect else alpha
    shift = abs(effect) * math.sqrt(n) / sd
    critical = NORMAL.inv_cdf(1 - alpha / 2)
    return NORMAL.cdf(shift - critical) + NORMAL.cdf(-shift - critical)
