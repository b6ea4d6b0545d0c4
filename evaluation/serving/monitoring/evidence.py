"""An e-value for a new arm that is worse than the one before: it may be looked at after every session.

Which arm a session gets is drawn, the new one with a known ``share``. If the arms do the same, then what happened in a
session says nothing about which arm it had: given the outcome, the arm still is that coin. Evidence is the profit of a
bet on the coin, placed after the outcome is seen: an alternative says how much more likely the outcome is under the new
arm (``exp(tilt)``), and the factor is the arm's probability under the alternative over its share. Its mean is 1 if the
arms do the same, so that the product over sessions ever reaches 1/alpha with probability alpha at most (Ville 1939; for
two samples Turner, Ly and Grünwald, Journal of Statistical Planning and Inference 230, 2024). Nothing is assumed of the
outcomes: rates may drift by hour and day, and values may have any distribution, since only the draw is random.

A mixture over several tilts is an e-value again. What a tilt is made from (the rate of the old arm, the usual value)
is taken from earlier sessions only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, Self

RATIOS: Final = (1.5, 2.0, 4.0)  # of the new arm's rate of failure to the old one's
SHIFTS: Final = (0.25, 0.5, 1.0)  # of the new arm's values, in standard deviations
PRIOR_BAD, PRIOR_ALL = 1.0, 20.0  # failures before any is seen: 1 of 20
MOST_RATE: Final = 0.98
MOST_DEVIATIONS: Final = 3.0  # a single value counts for no more than that


class Bets(Protocol):
    """Likelihood ratio of an outcome under the new arm, by each alternative. It learns from the added outcomes."""

    def tilts(self, outcome: Any) -> Sequence[float]: ...

    def see(self, outcome: Any, *, new: bool) -> None: ...

    def as_json(self) -> dict[str, Any]: ...


@dataclass
class FailureBets:
    """Of an outcome (failures, requests): the new arm's rate of failure is one of ``RATIOS`` times the old one's, which
    is estimated from what the old arm did before."""

    bad: float = PRIOR_BAD
    n: float = PRIOR_ALL

    def tilts(self, outcome: tuple[int, int]) -> list[float]:
        bad, n = outcome
        rate = min(self.bad / self.n, MOST_RATE)
        tilted = [min(ratio * rate, max(MOST_RATE, rate)) for ratio in RATIOS]
        return [bad * math.log(one / rate) + (n - bad) * math.log((1 - one) / (1 - rate)) for one in tilted]

    def see(self, outcome: tuple[int, int], *, new: bool) -> None:
        if not new:
            self.bad += outcome[0]
            self.n += outcome[1]

    def as_json(self) -> dict[str, Any]:
        return {"bad": self.bad, "n": self.n}


@dataclass
class ValueBets:
    """Of a number of which more is worse (``sign`` 1) or less (-1): the new arm's lie one of ``SHIFTS`` standard
    deviations on the worse side. Mean and deviation are those of all sessions before, of both arms."""

    sign: int = 1
    n: float = 0.0
    mean: float = 0.0
    squares: float = 0.0  # sum of squared deviations (Welford 1962)

    def tilts(self, outcome: float) -> list[float]:
        deviation = math.sqrt(self.squares / self.n) if self.n > 1 else 0.0
        if deviation <= 0:
            return [0.0] * len(SHIFTS)
        z = self.sign * (outcome - self.mean) / deviation
        z = max(-MOST_DEVIATIONS, min(z, MOST_DEVIATIONS))
        return [shift * z - shift * shift / 2 for shift in SHIFTS]

    def see(self, outcome: float, *, new: bool) -> None:
        self.n += 1
        before = outcome - self.mean
        self.mean += before / self.n
        self.squares += before * (outcome - self.mean)

    def as_json(self) -> dict[str, Any]:
        return {"sign": self.sign, "n": self.n, "mean": self.mean, "squares": self.squares}


@dataclass
class Evidence:
    """The e-value of one guardrail: ``logs`` are the logarithms of the products, one for each alternative."""

    bets: Bets
    logs: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])

    def add(self, outcome: Any, *, new: bool, share: float) -> None:
        """Takes in one session. ``share`` in (0, 1) is the probability with which it was given the new arm.

        Raises:
            ValueError: ``share`` is none.
        """
        if not 0 < share < 1:
            raise ValueError(f"share must lie between 0 and 1; got {share}.")
        for at, tilt in enumerate(self.bets.tilts(outcome)):
            self.logs[at] += (tilt if new else 0.0) - math.log1p(share * math.expm1(tilt))
        self.bets.see(outcome, new=new)

    @property
    def e_value(self) -> float:
        most = max(self.logs)
        if most > 700:
            return math.inf
        return math.fsum(math.exp(log) for log in self.logs) / len(self.logs)

    def as_json(self) -> dict[str, Any]:
        return {"logs": list(self.logs), **self.bets.as_json()}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        kept = {name: value for name, value in stored.items() if name != "logs"}
        bets: Bets = ValueBets(**kept) if "sign" in kept else FailureBets(**kept)
        return cls(bets, list(stored["logs"]))
