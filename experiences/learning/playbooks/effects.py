"""Effect of each playbook item on the success rate of executions, from contexts that left items out at random
(``leave_out``).

The plain difference of two shares is unbiased, since chance alone decides which executions lack an item. Its interval
at one analysis is Newcombe's (1998, method 10), built from two Wilson intervals: it holds for few executions too, and
near 0 and 1. An item is analysed repeatedly, so that decisions use a confidence sequence (``confidence_sequence``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from agentcore_site.lib.statistics import wilson_interval
from experiences.learning.playbooks.confidence_sequence import confidence_sequence
from experiences.learning.playbooks.effects_by_words import Expected

WEAK: Final = 0.01  # of the share of successes: an item that adds less is expected to add less than a new one
DOUBT: Final = 0.5  # deviations by which an estimate has to lie below that
FEWEST: Final = 20  # executions with and without an item, below which nothing is decided by its effect


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Outcomes of ``n`` executions, of which ``good`` succeeded."""

    n: int = 0
    good: int = 0

    @property
    def share(self) -> float:
        return self.good / self.n if self.n else 0.0

    def without(self, other: Outcomes) -> Outcomes:
        return Outcomes(self.n - other.n, self.good - other.good)


@dataclass(frozen=True, slots=True)
class ItemEffect:
    """Executions that had an item in their context and those that lacked it by chance. ``reporting`` counts, of the
    former, those whose agent reported which items its answer used, and ``used`` those that used this one. ``expected``
    is the estimate by words of the inputs, where they were read: it ranks items, and decides nothing by itself."""

    included: Outcomes
    left_out: Outcomes
    reporting: int = 0
    used: int = 0
    expected: Expected | None = None

    @property
    def difference(self) -> float:
        """The item's effect on the share of successes, in [-1, 1]."""
        return self.included.share - self.left_out.share

    @property
    def estimate(self) -> float:
        """The best estimate of the effect: by words of the inputs where these were read, else the difference."""
        return self.difference if self.expected is None else self.expected.mean

    @property
    def weak(self) -> bool:
        """True if it is measured to add hardly anything, or to take away."""
        doubt = 0.0 if self.expected is None else DOUBT * self.expected.deviation
        return self.known and not self.helps and self.estimate + doubt < WEAK

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the difference, for one analysis."""
        return newcombe(self.included, self.left_out)

    @property
    def sequence(self) -> tuple[float, float]:
        """The interval that holds at all analyses at once, with 95 %; decisions go by it."""
        return confidence_sequence(self.included.good, self.included.n, self.left_out.good, self.left_out.n)

    @property
    def sequence_low(self) -> float:
        return self.sequence[0]

    @property
    def sequence_high(self) -> float:
        return self.sequence[1]

    @property
    def low(self) -> float:
        return self.interval[0]

    @property
    def high(self) -> float:
        return self.interval[1]

    @property
    def known(self) -> bool:
        """True if both sides have enough executions for a decision."""
        return min(self.included.n, self.left_out.n) >= FEWEST

    @property
    def harms(self) -> bool:
        return self.known and self.sequence_high < 0

    @property
    def helps(self) -> bool:
        return self.known and self.sequence_low > 0


def newcombe(one: Outcomes, other: Outcomes) -> tuple[float, float]:
    """The 95 % interval of the difference of two shares."""
    (low, high), (other_low, other_high) = wilson_interval(one.good, one.n), wilson_interval(other.good, other.n)
    difference = one.share - other.share if one.n and other.n else 0.0
    below = math.hypot(one.share - low, other_high - other.share)
    above = math.hypot(high - one.share, other.share - other_low)
    return max(-1.0, difference - below), min(1.0, difference + above)
