"""What the month will have cost at its end. Pure arithmetic on daily sums (ALGORITHMS 7.4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Final

# Student's t, 95 % quantile for 1 to 6 degrees of freedom: at most seven days are looked at.
T95: Final = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943)


@dataclass(frozen=True, slots=True)
class Forecast:
    """Micro-dollars at the period's end: the middle and a 90 % interval, never below what is spent already.

    ``days``: how many whole days it rests on. With fewer than two there is no interval, and ``low``, ``high`` are None.
    """

    spent: int
    middle: int
    low: int | None
    high: int | None
    days: int

    def exceeds(self, limit: int | None) -> bool:
        return limit is not None and self.middle > limit


def forecast(spent: int, daily: Sequence[int], days_left: float) -> Forecast:
    """``spent`` so far, the sums of the last whole days, and the days that are left (a fraction counts).

    m days at mean x and deviation s come to m x +- t sqrt(m s^2 + m^2 s^2 / n) (ALGORITHMS 7.4).
    """
    days, left = daily[-7:], max(0.0, days_left)
    n = len(days)
    mean = sum(days) / n if n else 0.0
    middle = spent + round(left * mean)
    if n < 2:
        return Forecast(spent, middle, None, None, n)
    variance = sum((one - mean) ** 2 for one in days) / (n - 1)
    half = T95[n - 2] * sqrt(left * variance + left**2 * variance / n)
    return Forecast(spent, middle, max(spent, round(middle - half)), round(middle + half), n)
