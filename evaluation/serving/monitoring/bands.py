"""The difference between two arms with an interval that holds at all interim analyses together.

Sessions are given the new arm with a known share. Weighting each by the inverse of its probability estimates the
difference of the means without bias, under any traffic (Horvitz and Thompson 1952; centred by what was usual
before, it varies less). The interval is the asymptotic confidence sequence of Waudby-Smith, Arbour, Sinha, Kennedy and
Ramdas (Annals of Statistics 52, 2024), theorem 2.2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple, Self

ALPHA: Final = 0.05
TIGHTEST_AT: Final = 400.0  # sessions at which the band is tightest for its level
LEAST: Final = 30  # sessions of each arm, below which no band is drawn: the sequence is exact for many sessions only


class Band(NamedTuple):
    """New arm less old one. ``low`` and ``high`` are infinite where too little was seen."""

    difference: float
    low: float
    high: float


@dataclass
class Difference:
    """Running sums over sessions: of the weighted differences, of their squares, and of each arm's values."""

    n: int = 0
    new: int = 0
    total: float = 0.0
    squares: float = 0.0
    sum_new: float = 0.0
    sum_old: float = 0.0

    def add(self, value: float, *, new: bool, share: float) -> None:
        """Takes in one session's ``value``; ``share`` in (0, 1) is the probability with which it was given the new arm.

        Raises:
            ValueError: ``share`` is none.
        """
        if not 0 < share < 1:
            raise ValueError(f"share must lie between 0 and 1; got {share}.")
        usual = (self.sum_new + self.sum_old) / self.n if self.n else 0.0
        weighted = (value - usual) * (1 / share if new else -1 / (1 - share))
        self.n += 1
        self.new += new
        self.total += weighted
        self.squares += weighted * weighted
        if new:
            self.sum_new += value
        else:
            self.sum_old += value

    @property
    def means(self) -> tuple[float, float]:
        """Of the new arm and of the old one; NaN where nothing was seen."""
        old = self.n - self.new
        return (
            self.sum_new / self.new if self.new else math.nan,
            self.sum_old / old if old else math.nan,
        )

    def band(self, alpha: float = ALPHA) -> Band:
        """Two-sided, over all analyses together."""
        if min(self.new, self.n - self.new) < LEAST:
            return Band(self.total / self.n if self.n else math.nan, -math.inf, math.inf)
        mean = self.total / self.n
        variance = max(self.squares / self.n - mean * mean, 0.0)
        half = math.sqrt(variance) * _radius(self.n, alpha)
        return Band(mean, mean - half, mean + half)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        return cls(**stored)


def _radius(n: int, alpha: float) -> float:
    """Half of the interval's width after ``n`` sessions, in standard deviations."""
    # The mixture's scale for which the interval is tightest at TIGHTEST_AT (equation 56 of the paper).
    rho2 = (-2 * math.log(alpha) + math.log(-2 * math.log(alpha) + 1)) / TIGHTEST_AT
    scaled = n * rho2 + 1
    return math.sqrt(2 * scaled / (n * n * rho2) * math.log(math.sqrt(scaled) / alpha))
