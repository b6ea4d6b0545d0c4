"""A confidence sequence for the difference of two shares: an interval that holds at all analyses at once.

Evolutions test each item again and again; by an interval for one analysis, items without effect would some day be
taken for harmful ones.

If an item changes nothing, then of the successes and of the failures the same share lacked it, even if success
depends on other things. So the outcomes are taken as given, and what is tested is which executions lacked the item:

1. An effect shifts the odds of lacking it: among the successes by the ratio of the two shares of success, among the
   failures by the ratio of the two shares of failure. A mixture over such shifts, for harm and for help alike, is the
   alternative (the method of mixtures: Robbins 1970; Howard, Ramdas, McAuliffe and Sekhon, Annals of Statistics 49,
   2021; for 2 x 2 tables: Turner, Ly and Grünwald, Journal of Statistical Planning and Inference 230, 2024).
2. Its likelihood is divided by that of a difference d. Of a true d this ratio is a non-negative martingale that begins
   at 1, so that it ever exceeds 1/alpha with probability alpha at most (Ville). All d for which it does not are the
   sequence's interval.
3. The share of executions without the item is the observed one, which makes the divisor the largest that it can be at
   d = 0 (universal inference: Wasserman, Ramdas and Balakrishnan, PNAS 117, 2020). By the rate of the draw alone a
   service that uses one context for many executions would be misjudged: 84 % of items that do nothing were taken out.
   Away from 0 the share of all successes is taken as observed too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

ALPHA: Final = 0.05  # two-sided, over all analyses together
SHIFTS: Final = (0.15, 0.3, 0.6)  # logarithms of ratios of shares
STEPS: Final = 30  # of a bisection
PRIOR: Final = 2.0  # successes, and failures, added to the share of all successes (Agresti and Coull 1998)


@lru_cache(4096)
def confidence_sequence(good: int, n: int, other_good: int, other_n: int) -> tuple[float, float]:
    """The interval at one analysis: ``good`` of ``n`` against ``other_good`` of ``other_n``, as a difference of shares
    in [-1, 1]; all of it where one of them has no outcomes.

    Raises:
        ValueError: there are more successes than outcomes.
    """
    if not (0 <= good <= n and 0 <= other_good <= other_n):
        raise ValueError(f"{good} of {n} and {other_good} of {other_n} are no shares.")
    if not n or not other_n:
        return -1.0, 1.0
    table = _Table(good, n, other_good, other_n)
    difference = good / n - other_good / other_n
    least, most = table.reach
    inside = min(max(difference, least), most)
    low, high = table.edge(inside, least), table.edge(inside, most)
    return max(-1.0, min(low, difference)), min(1.0, max(high, difference))


class _Table:
    """The counts of one analysis, and the bound of the log-likelihood for a difference in the interval."""

    def __init__(self, good: int, n: int, other_good: int, other_n: int) -> None:
        self.successes = (other_good, good)  # (without, with)
        self.failures = (other_n - other_good, n - good)
        self.lacking = other_n / (n + other_n)
        self.share = (good + other_good + PRIOR) / (n + other_n + 2 * PRIOR)
        self.least = self._mixture() + math.log(ALPHA)

    @property
    def reach(self) -> tuple[float, float]:
        """The differences that can be, with this share of all successes."""
        low = max(-(1 - self.share) / (1 - self.lacking), -self.share / self.lacking)
        return low, min(self.share / (1 - self.lacking), (1 - self.share) / self.lacking)

    def edge(self, inside: float, end: float) -> float:
        """The end of the interval, between a difference inside it and the last possible one: the likelihood is
        concave."""
        if self._log(end) > self.least:
            return end
        for _ in range(STEPS):
            middle = (inside + end) / 2
            inside, end = (middle, end) if self._log(middle) > self.least else (inside, middle)
        return end

    def _log(self, difference: float) -> float:
        """The log likelihood of a difference, by which executions lacked the item, given the outcomes."""
        without = self.share - (1 - self.lacking) * difference
        return _binomial(self.successes, self.lacking * without / self.share) + _binomial(
            self.failures, self.lacking * (1 - without) / (1 - self.share)
        )

    def _mixture(self) -> float:
        """The log likelihood of the alternative: one half harm, where successes lack the item more often and failures
        less often, and one half help."""
        harm = self._shifted(self.successes, 1) + self._shifted(self.failures, -1)
        help = self._shifted(self.successes, -1) + self._shifted(self.failures, 1)
        return _log_mean([harm, help])

    def _shifted(self, counts: tuple[int, int], sign: int) -> float:
        odds = math.log(self.lacking / (1 - self.lacking))
        return _log_mean(_binomial(counts, 1 / (1 + math.exp(-odds - sign * shift))) for shift in SHIFTS)


def _binomial(counts: tuple[int, int], share: float) -> float:
    """The log likelihood of (lacking, not lacking), without its constant."""
    lacking, had = counts
    return _times(lacking, share) + _times(had, 1 - share)


def _times(n: int, share: float) -> float:
    if not n:
        return 0.0
    return n * math.log(share) if share > 0 else -math.inf


def _log_mean(logs: Iterable[float]) -> float:
    every = list(logs)
    most = max(every)
    return most + math.log(math.fsum(math.exp(one - most) for one in every) / len(every))
