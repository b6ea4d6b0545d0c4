"""Forecast of a month's cost. Pure arithmetic on daily sums
(docs/algorithms.md#forecasts-of-cost)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Final

FEWEST_DAYS: Final = 3  # whole days of spending, before which a pace is a guess
# Student's t, 95 % quantile for 1 to 6 degrees of freedom: at most seven days are looked at.
T95: Final = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943)


@dataclass(frozen=True, slots=True)
class Forecast:
    """Micro-dollars at the period's end: the middle and a 90 % interval, never below what is spent already.

    ``days``: how many whole days it rests on. From fewer than three nothing is forecast: ``days`` is 0,
    ``middle_micros`` is what is spent, ``low_micros`` and ``high_micros`` are None.
    """

    spent_micros: int
    middle_micros: int
    low_micros: int | None
    high_micros: int | None
    days: int

    def exceeds(self, limit_micros: int | None) -> bool:
        return limit_micros is not None and self.middle_micros > limit_micros


def forecast(spent_micros: int, daily_micros: Sequence[int], days_left: float) -> Forecast:
    """The spending so far, the sums of the last whole days, and the days that are left (a fraction counts).

    m days at mean x and deviation s come to m x +- t sqrt(m s^2 + m^2 s^2 / n).
    """
    days, left = daily_micros[-7:], max(0.0, days_left)
    n = len(days)
    if n < FEWEST_DAYS:
        return Forecast(spent_micros, spent_micros, None, None, 0)
    mean = sum(days) / n
    middle_micros = spent_micros + round(left * mean)
    variance = sum((day - mean) ** 2 for day in days) / (n - 1)
    half = T95[n - 2] * sqrt(left * variance + left**2 * variance / n)
    low_micros, high_micros = max(spent_micros, round(middle_micros - half)), round(middle_micros + half)
    return Forecast(spent_micros, middle_micros, low_micros, high_micros, n)
