"""Intervals of proportions, for all that counts successes, and numbers that could not be measured."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Final, NamedTuple

NORMAL: Final = NormalDist()


class Interval(NamedTuple):
    low: float
    high: float


def z_value(confidence: float) -> float:
    """The two-sided normal quantile: 1.96 for 0.95."""
    return NORMAL.inv_cdf(0.5 + confidence / 2)


def wilson_interval(successes: float, n: int, confidence: float = 0.95) -> Interval:
    """Wilson score interval of a proportion; (0, 1) for no observations.

    Raises:
        ValueError: ``successes`` lies outside 0..n.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"successes must lie between 0 and n = {n}; got {successes}.")
    if n == 0:
        return Interval(0.0, 1.0)
    z = z_value(confidence)
    p = successes / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    return Interval(low, 1.0 if successes == n else min(1.0, centre + half))


def finite_or_none(value: float) -> float | None:
    """JSON and databases have no NaN: null is written for a missing measurement."""
    return float(value) if math.isfinite(value) else None
