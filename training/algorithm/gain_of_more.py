"""Expected gain of further rollouts: better estimates choose better lessons, and that is all that is counted here.

Before n' further rollouts the posterior of an effect is N(m, s^2), after n earlier ones. The next posterior mean is
N(m, c^2) with c^2 = s^2 n' / (n + n'), since precision grows with the rollouts. A lesson is used where its mean lies
above 0, so its use changes only where the mean changes its sign. The expected gain of that is
c phi(z) - |m| Phi(z), z = -|m| / c (Raiffa and Schlaifer 1961, the expected value of sample information; the knowledge
gradient of Frazier, Powell and Dayanik 2008). Effects add up, as in the regression that estimates them.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from training.algorithm.arrays import FloatArray

Z95: Final = 1.96


class GainOfMore(NamedTuple):
    """Expected gain in units of reward for each query, with the 95 % interval of the gain itself."""

    expected: float
    low: float
    high: float


def shrunk(mean: FloatArray, error: FloatArray, rollouts: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Posterior means and deviations (K,) of estimates with their standard errors, where effects are drawn from
    N(0, t^2). The ``rollouts`` (K,) become those that would be as informative as prior and estimate together.

    t^2 is what the squares of the estimates have above that of their errors (empirical Bayes, Morris 1983)."""
    known = error[np.isfinite(error) & (error > 0)] ** 2
    drawn = max(float((mean**2).mean() - known.mean()), 0.0) if len(known) else 0.0
    kept = drawn / np.maximum(drawn + error**2, 1e-12)
    return kept * mean, error * np.sqrt(kept), rollouts / np.maximum(kept, 1e-12)


def gain_of_more(mean: FloatArray, sd: FloatArray, rollouts: FloatArray, more: float) -> GainOfMore:
    """The gain of ``more`` further rollouts by the choice among K lessons. ``mean``, ``sd`` and ``rollouts`` (K,) are
    each effect's posterior and the rollouts behind it. Lessons without a rollout or a deviation count as nothing."""
    known = (rollouts > 0) & (sd > 0)
    if not known.any() or more <= 0:
        return GainOfMore(0.0, 0.0, 0.0)
    variance = sd[known] ** 2
    moves = variance * more / (rollouts[known] + more)
    away, step = -np.abs(mean[known]), np.sqrt(moves)
    z = away / step
    density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    turns = np.array([0.5 * math.erfc(-float(one) / math.sqrt(2)) for one in z])  # P(the mean changes its sign)
    expected = np.maximum(step * density + away * turns, 0.0)
    # The gain is the effect itself where the choice changes, so that what stays unknown of it adds to the spread.
    square = (away**2 + moves) * turns + away * step * density + (variance - moves) * turns
    half = Z95 * math.sqrt(max(float((square - expected**2).sum()), 0.0))
    total = float(expected.sum())
    return GainOfMore(total, total - half, total + half)
