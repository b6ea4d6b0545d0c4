"""A test that a release fails more often than a rate that was known before: where no other release takes traffic.

A likelihood ratio against that rate, averaged over several worse ones, is an e-value (Ville 1939): it may be looked at
after every request. Unlike the canary's it asks that traffic stays as hard as it was.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

from evaluation.serving.monitoring.evidence import MOST_RATE, RATIOS

LEAST_RATE: Final = 0.02  # a release that never failed may fail now and then
UNKNOWN_RATE: Final = 0.1
FEW: Final = 20  # requests, below which nothing is known of a rate


@dataclass
class FixedRate:
    """``rate`` is what is believed of the release before; ``logs`` the evidence for each of ``RATIOS`` times that."""

    rate: float
    n: int = 0
    failed: int = 0
    logs: list[float] = field(default_factory=lambda: [0.0] * len(RATIOS))

    @classmethod
    def above(cls, failed: int, n: int) -> Self:
        """The rate that ``failed`` of ``n`` requests don't exceed, on the side of caution (Agresti and Coull's upper
        bound of 95 %); ``UNKNOWN_RATE`` where they are few."""
        if n < FEW:
            return cls(UNKNOWN_RATE)
        centre = (failed + 2) / (n + 4)
        return cls(min(MOST_RATE, max(LEAST_RATE, centre + 2 * math.sqrt(centre * (1 - centre) / (n + 4)))))

    def add(self, *, failed: bool) -> None:
        self.n += 1
        self.failed += failed
        for at, ratio in enumerate(RATIOS):
            worse = min(ratio * self.rate, MOST_RATE)
            self.logs[at] += math.log(worse / self.rate) if failed else math.log((1 - worse) / (1 - self.rate))

    @property
    def e_value(self) -> float:
        if max(self.logs) > 700:
            return math.inf
        return math.fsum(math.exp(log) for log in self.logs) / len(self.logs)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        return cls(**stored)
