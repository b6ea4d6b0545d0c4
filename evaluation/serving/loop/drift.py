"""Detection of a decline in production since a release was deployed: an anytime-valid test. Pure, no Django.

As long as nothing changes, the rank of a new value among all before it is uniform and independent of the earlier ranks,
under any distribution (Vovk, Gammerman and Shafer, Algorithmic Learning in a Random World, 2005). Bets on low ranks
then multiply to an e-process. A new bettor starts every ``BLOCK`` traces, so that a change after a long quiet time is
still detected; their weighted mean is an e-process again. Failures are rare, so their ranks carry little information:
they use the likelihood ratio against the rate of the first traces (``serving.monitoring.fixed_rate``). The mean of both
reaches 1/alpha with probability alpha at most, over all interim analyses together (Ville 1939).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from agentcore_site.lib.statistics import finite_or_none
from evaluation.serving.monitoring.fixed_rate import FixedRate

ALPHA: Final = 0.01
FIRST: Final = 200  # traces of the reference period
BLOCK: Final = 250
STAKES: Final = (0.25, 0.5, 0.9)  # shares of a bettor's capital on a reward's rank; the whole could be lost
MOST: Final = 20_000  # maximum number of traces in an analysis


@dataclass(frozen=True, slots=True)
class DriftAnalysis:
    """The result of ``n`` traces. Means of the rewards and shares of failures in the reference period and since; NaN if
    unknown."""

    n: int
    e_rewards: float
    e_failures: float
    reward_first: float
    reward_since: float
    failed_first: float
    failed_since: float

    @property
    def e_value(self) -> float:
        return (self.e_rewards + self.e_failures) / 2

    @property
    def worse(self) -> bool:
        return self.e_value >= 1 / ALPHA

    @property
    def sentence(self) -> str:
        if not self.worse:
            return f"No sign over {self.n:,} traces (e-value {self.e_value:.2f}; it begins a turn at {1 / ALPHA:.0f})."
        if self.e_failures >= self.e_rewards:
            moved = f"{self.failed_first:.1%} of the traces failed at first, {self.failed_since:.1%} since"
        else:
            moved = f"the reward was {self.reward_first:.3f} at first and {self.reward_since:.3f} since"
        return f"Production got worse: {moved} (error of at most {100 * ALPHA:g} % over all analyses)."

    def as_json(self) -> dict[str, Any]:
        known = {name: finite_or_none(min(value, 1e12)) for name, value in asdict(self).items()}
        return known | {"e_value": min(self.e_value, 1e12), "worse": self.worse, "sentence": self.sentence}


def drift(failed: Sequence[bool], rewards: Sequence[float | None]) -> DriftAnalysis:
    """Analyses a release's traces in their order, (n,) each; a missing reward is None."""
    failed, rewards = failed[:MOST], rewards[:MOST]
    known = [reward for reward in rewards if reward is not None]
    return DriftAnalysis(
        len(failed),
        _rewards(known),
        _failures(failed),
        *(_mean(part) for part in (known[:FIRST], known[FIRST:], failed[:FIRST], failed[FIRST:])),
    )


def _failures(failed: Sequence[bool]) -> float:
    later = failed[FIRST:]
    rate = FixedRate.above(sum(failed[:FIRST]), FIRST)
    values = []
    for at in range(len(later) - 1, -1, -1):  # backwards: accumulates the traces after each bettor's start
        rate.add(failed=later[at])
        if at % BLOCK == 0:
            values.append(rate.e_value)
    return _mixed(values[::-1])


def _rewards(values: Sequence[float]) -> float:
    ties = np.random.default_rng(0)  # for equal values: independent of them
    stakes = np.array(STAKES)
    logs = np.zeros((0, len(STAKES)))
    seen: list[float] = []
    for at, one in enumerate(values):
        below, up_to = bisect_left(seen, one), bisect_right(seen, one)
        rank = (below + ties.random() * (up_to - below + 1)) / (len(seen) + 1)
        insort(seen, one)
        if at < FIRST:
            continue
        if (at - FIRST) % BLOCK == 0:
            logs = np.vstack([logs, np.zeros(len(STAKES))])
        logs += np.log1p(stakes * (1 - 2 * rank))
    return _mixed([float(np.exp(np.minimum(row, 700)).mean()) for row in logs])


def _mixed(values: Sequence[float]) -> float:
    """Mean of bettors who start one after the other: the k-th has 1/(k (k + 1)) of the capital, and holds it until
    then."""
    begun = math.fsum(value / (k * (k + 1)) for k, value in enumerate(values, start=1))
    return begun + 1 / (len(values) + 1)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan
