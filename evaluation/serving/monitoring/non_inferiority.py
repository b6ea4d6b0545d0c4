"""A test that a new arm is no worse than the old one by a margin, at any analysis.

Which arm a session gets is drawn, the new one with a known ``share``. So its loss, less what is usual and weighted by
the inverse of that probability, has as its mean the difference of the arms (Horvitz and Thompson 1952). If the new arm
is worse by the margin at least, a bet that it is not loses on average under any distribution of losses in [0, 1]:
the capital is a test martingale, which ever reaches 1/alpha with probability alpha at most (Ville 1939). The margins at
which it has reached that are those outside of a confidence sequence (Waudby-Smith and Ramdas, JRSS B 86, 2024), so that
this asks whether its bound lies below the margin.

The stake is the one that grows fastest if the arms are equal. It is made from earlier sessions only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

ALPHA: Final = 0.05
PRIOR: Final = 20.0  # sessions that the usual loss and its variance begin with
PRIOR_LOSS: Final = 0.05
MOST_STAKE: Final = 0.5  # of the capital that a single session may cost


@dataclass
class NonInferiority:
    """The evidence that the new arm's mean loss is less than ``margin`` above the old one's: ``log`` of the capital."""

    margin: float
    log: float = 0.0
    n: int = 0
    total: float = PRIOR * PRIOR_LOSS
    squares: float = PRIOR * PRIOR_LOSS * (1 - PRIOR_LOSS)

    def add(self, loss: float, *, new: bool, share: float) -> None:
        """Takes in one session's ``loss`` in [0, 1]; ``share`` in (0, 1) is the probability with which it was given the
        new arm.

        Raises:
            ValueError: one of them lies outside.
        """
        if not 0 < share < 1:
            raise ValueError(f"share must lie between 0 and 1; got {share}.")
        if not 0 <= loss <= 1:
            raise ValueError(f"a loss lies between 0 and 1; got {loss}.")
        usual, variance = self.total / (PRIOR + self.n), self.squares / (PRIOR + self.n)
        weighted = (loss - usual) * (1 / share if new else -1 / (1 - share))
        most = max((1 - usual) / share, usual / (1 - share))  # that ``weighted`` could have been
        stake = self.margin / (variance / (share * (1 - share)) + self.margin**2)
        if most > self.margin:
            stake = min(stake, MOST_STAKE / (most - self.margin))
        self.log += math.log1p(stake * (self.margin - weighted))
        self.n += 1
        self.total += loss
        self.squares += (loss - usual) ** 2

    @property
    def shown(self) -> bool:
        return self.log >= -math.log(ALPHA)


@dataclass
class NoWorse:
    """Measures that must be shown before an arm goes on, each by evidence of its own. All must be shown, so that none
    needs a correction for the others. ``score`` is 1 minus the share of the reward that an answer earned; it counts
    where it is known."""

    margin: float
    known: dict[str, NonInferiority] = field(default_factory=dict)

    def add(self, *, new: bool, share: float, failures: float, score: float | None) -> None:
        """Takes in a whole session: the share of its requests that failed, and the mean score of its answers. Sessions
        come in the order in which they began, so that which of them are known does not depend on their arm."""
        losses = {"failures": failures} | ({} if score is None else {"score": 1 - score})
        for name, loss in losses.items():
            self.known.setdefault(name, NonInferiority(self.margin)).add(loss, new=new, share=share)

    @property
    def unshown(self) -> list[str]:
        """Names of what is not shown yet."""
        asked = self.known or {"failures": NonInferiority(self.margin)}
        return [name for name, one in asked.items() if not one.shown]

    def as_json(self) -> dict[str, Any]:
        return {"margin": self.margin, "known": {name: asdict(one) for name, one in self.known.items()}}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        return cls(stored["margin"], {name: NonInferiority(**one) for name, one in sorted(stored["known"].items())})
