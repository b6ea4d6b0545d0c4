"""Statistics of evaluations: pure.
The paired comparison, which training needs as well, is in ``training.algorithm.inference``; intervals of proportions
are in ``agentcore_site.lib.statistics``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from agentcore_site.lib.statistics import NORMAL
from training.algorithm.arrays import FloatArray


def holm(p_values: Sequence[float]) -> FloatArray:
    """Holm's step-down adjusted p-values: they control the family-wise error rate (Holm 1979)."""
    p = np.asarray(p_values, dtype=np.float64)
    n = len(p)
    order = np.argsort(p)
    stepped = np.maximum.accumulate(p[order] * (n - np.arange(n)))
    adjusted = np.empty(n)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted


def minimum_detectable_effect(sd: float, n: int, *, power: float = 0.8, alpha: float = 0.05) -> float:
    """The smallest mean paired difference that n queries can detect: (z_alpha/2 + z_power) sd / sqrt(n), by default
    2.8 sd / sqrt(n). Infinite for fewer than two queries."""
    if n < 2:
        return math.inf
    return (NORMAL.inv_cdf(1 - alpha / 2) + NORMAL.inv_cdf(power)) * sd / math.sqrt(n)


def p_of_try(p_value: float, number: int) -> float:
    """The p-value of try ``number`` (from 1) on the same queries, corrected for all tries. However many follow, the
    family-wise error is bounded: the shares 1 / (k (k + 1)) of alpha sum to 1 (Foster and Stine 2008)."""
    return min(p_value * number * (number + 1), 1.0)
