"""Return of a month's learning, from what was measured: amounts in dollars, with the ends of their intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Self

ASSUMPTIONS: Final = (
    "Saved: the difference in cost per query between a release and the one before it, as its deployment measured it,"
    " times the queries that it answered in the month. Traces that were deleted are not counted.",
    "Gained: right answers by the held-out proof of the release's checkpoint, times the same queries, times the value"
    " of a right answer. Without a value, only savings count.",
    "Cost: all calls of the agent in the ledger but those that answered users, in the month in which they were paid."
    " What they taught pays in later months too.",
    "Intervals are those of both measurements, of 95 % each; their ends are added up, which is wider than need be.",
    "Traffic is taken to be as it was while the release was measured.",
)


@dataclass(frozen=True, slots=True)
class Amount:
    """A value with its interval; None where it is not known."""

    value: float = 0.0
    low: float | None = 0.0
    high: float | None = 0.0

    @classmethod
    def of(cls, value: float, low: float | None, high: float | None) -> Self:
        known = low is not None and high is not None and math.isfinite(low) and math.isfinite(high)
        return cls(value, low if known else None, high if known else None)

    def __mul__(self, factor: float) -> Amount:
        """``factor``: not negative."""
        return Amount(
            self.value * factor,
            None if self.low is None else self.low * factor,
            None if self.high is None else self.high * factor,
        )

    def __add__(self, other: Amount) -> Amount:
        low = None if self.low is None or other.low is None else self.low + other.low
        high = None if self.high is None or other.high is None else self.high + other.high
        return Amount(self.value + other.value, low, high)


@dataclass(frozen=True, slots=True)
class ReleaseMonth:
    """A release in one month. ``saved``: dollars per query; ``gained``: right answers per query; None: not measured."""

    number: int
    queries: int
    saved: Amount | None
    gained: Amount | None


@dataclass(frozen=True, slots=True)
class MonthReturn:
    """``cost`` and ``serving`` in dollars; ``multiple`` is the return in units of the cost, None where nothing was
    paid or measured."""

    cost: float
    serving: float
    queries: int
    saved: Amount
    gained: Amount
    multiple: Amount | None
    measured: bool
    releases: tuple[ReleaseMonth, ...] = field(default=())


def month_return(
    releases: Iterable[ReleaseMonth], *, cost: float, serving: float, value_of_answer: float = 0.0
) -> MonthReturn:
    """The return of a month in which these releases answered."""
    known = tuple(releases)
    saved = sum((one.saved * one.queries for one in known if one.saved is not None), Amount())
    answers = sum((month.gained * month.queries for month in known if month.gained is not None), Amount())
    gained = answers * value_of_answer if value_of_answer else Amount()
    measured = any(month.saved is not None or (value_of_answer and month.gained is not None) for month in known)
    brought = (saved + gained) * (1 / cost) if cost > 0 and measured else None
    return MonthReturn(cost, serving, sum(month.queries for month in known), saved, gained, brought, measured, known)
