"""A paired comparison of two arms with several interim analyses, which ends as soon as it is decided.

Each analysis compares the means of all samples so far, query by query, with Student's t over queries: effects differ
between queries, so samples of one query are not evidence of their own. Bounds are O'Brien and Fleming's (1979): strict
at first, nearly the fixed test's at the end. Between analyses only the noise of sampling shrinks and not the spread
between queries. So analyses are more alike than those bounds assume, and the error stays below what they promise.
Only NumPy and the standard library, so that workers stay small.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from agentcore_site.lib.statistics import NORMAL
from training.algorithm.arrays import FloatArray
from training.algorithm.inference import normal_of_student

Decision = Literal["better", "not_better", "open"]

LEAST_QUERIES = 5  # fewer can't distinguish a gain from chance
FUTILITY = 0.5  # an analysis ends the comparison below this statistic times the share of the analyses taken
_GRID = 0.02  # step of the numeric integration, in standard deviations of one analysis
_REACH = int(8 / _GRID)
_TRIALS, _SEED = 2_000, 20
_MOST = 200  # queries of a simulated comparison: more than that find what there is
# Of the worlds in which power is stated: success rates before, and how far gains differ between queries.
BASE_LOGIT, BASE_SPREAD, GAIN_SPREAD = -0.3, 1.5, 0.15


class InterimAnalysis(NamedTuple):
    """Result of one interim analysis: the statistic on the normal scale, the p-value of the whole test if it ended
    here, and the decision."""

    statistic: float
    p_value: float
    decision: Decision


class Power(NamedTuple):
    """Probability of finding a true mean gain, and the mean number of rollouts of both arms."""

    found: float
    rollouts: float


@dataclass(frozen=True, slots=True)
class Sequential:
    """``analyses`` in all, each after ``step`` more samples of each query and arm; ``alpha``: one-sided, over all."""

    analyses: int
    step: int
    alpha: float

    def analyse(self, differences: FloatArray, at: int) -> InterimAnalysis:
        """``differences`` (n,): of each query, treatment less control, means of ``at`` * ``step`` samples; ``at``
        counts from 1."""
        z = float(statistics(differences[None])[0])
        return InterimAnalysis(z, self._p_value(z, at), self._decided(np.array([z]), at)[0])

    def _p_value(self, z: float, at: int) -> float:
        """The smallest ``alpha`` whose bounds this analysis would have crossed: it agrees with the decision."""
        return crossing(self.analyses, z * math.sqrt(at))

    def _decided(self, z: FloatArray, at: int) -> list[Decision]:
        bound = boundary(self.analyses, self.alpha) / math.sqrt(at)
        low = bound if at >= self.analyses else FUTILITY * at / self.analyses
        return ["better" if one >= bound else "not_better" if one < low else "open" for one in z]

    def power(self, n_queries: int, gain: float) -> Power:
        """By simulation, with the same random numbers each time: success rates before are logistic-normal, gains
        normal with standard deviation ``GAIN_SPREAD`` between queries. Of more than 200 queries, what 200 find."""
        found, rollouts = _power(self, min(n_queries, _MOST), gain)
        return Power(found, rollouts * n_queries / max(min(n_queries, _MOST), 1))

    def queries_for(self, gain: float, found: float) -> int | None:
        """The fewest queries with which a true mean ``gain`` is found in this share of the runs; None where 200 are too
        few. Of gains to the whole point: the same worlds are simulated once."""
        asked = round(gain, 2)
        sizes = range(LEAST_QUERIES, _MOST + 1)
        at = bisect_left(sizes, True, key=lambda n: self.power(n, asked).found >= found)
        return sizes[at] if at < len(sizes) else None


@lru_cache(maxsize=256)
def _power(design: Sequential, n: int, gain: float) -> Power:
    if n < LEAST_QUERIES:
        return Power(0.0, 2.0 * n * design.step)
    rng = np.random.default_rng((_SEED, n))
    shape = (_TRIALS, n)
    # Rates before are drawn so that the gain fits: nothing can rise above 1.
    effect = np.clip(gain + GAIN_SPREAD * rng.standard_normal(shape), -1.0, 1.0)
    share = 1 / (1 + np.exp(-(BASE_LOGIT + BASE_SPREAD * rng.standard_normal(shape))))
    before = np.clip(-effect, 0, 1) + (1 - np.abs(effect)) * share
    after = np.clip(before + effect, 0.0, 1.0)
    arms = np.zeros(shape), np.zeros(shape)
    open_ = np.ones(_TRIALS, dtype=np.bool_)
    found, rollouts = 0, 0.0
    for at in range(1, design.analyses + 1):
        for sums, rate in zip(arms, (before, after), strict=True):
            sums += rng.binomial(design.step, rate)
        rollouts += 2.0 * n * design.step * float(open_.sum())
        decided = np.array(design._decided(statistics((arms[1] - arms[0]) / (at * design.step)), at))
        found += int((open_ & (decided == "better")).sum())
        open_ &= decided == "open"
    return Power(found / _TRIALS, rollouts / _TRIALS)


def statistics(differences: FloatArray) -> FloatArray:
    """Student's t of each row (m, n), on the normal scale; minus infinity where fewer than ``LEAST_QUERIES`` speak.

    Differences with a long lower tail make t too large (a context that hurts few queries much, and helps the others a
    little): there Hall's correction for skewness is taken (Hall 1992, section 3); it is not taken where it would help.
    It rises with the mean, however far the mean lies from 0. Johnson's (1978), of which it is the completed cube, does
    not: it turns around, and called a gain of 80 points no gain. Rows whose queries all differ by the same amount have
    no spread to be judged by: a half of one sample's worth is assumed.
    """
    m, n = differences.shape
    if n < LEAST_QUERIES:
        return np.full(m, -math.inf)
    mean = differences.mean(axis=1)
    centred = differences - mean[:, None]
    variance = (centred**2).sum(axis=1) / (n - 1)
    floor = 1.0 / (4.0 * n * n)  # the variance, about, of one query of n that differs by a half
    variance = np.maximum(variance, floor)
    skewness = np.minimum((centred**3).mean(axis=1), 0.0) / variance**1.5
    effect = mean / np.sqrt(variance)
    corrected = effect + skewness * effect**2 / 3 + skewness**2 * effect**3 / 27 + skewness / (6 * n)
    return normal_of_student(math.sqrt(n) * corrected, n - 1)


@lru_cache(maxsize=64)
def boundary(analyses: int, alpha: float) -> float:
    """The bound b of O'Brien and Fleming: analysis k decides where its statistic is at least b / sqrt(k)."""
    low, high = 0.0, 10.0 * math.sqrt(analyses)
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if crossing(analyses, middle) > alpha else (low, middle)
    return high


def crossing(analyses: int, bound: float) -> float:
    """The probability that one of the first ``analyses`` sums of independent standard normal numbers reaches ``bound``:
    by integrating from one analysis to the next (Armitage, McPherson and Rowe 1969)."""
    if math.isnan(bound) or bound == -math.inf:
        return 1.0
    if bound == math.inf:
        return 0.0
    lowest = -8.0 * math.sqrt(analyses)
    if bound <= lowest:
        return 1.0
    cells = max(math.ceil((bound - lowest) / _GRID), 1)
    x: FloatArray = bound - _GRID * (
        np.arange(cells, dtype=np.float64) + 0.5
    )  # middles of cells, downwards from the bound
    density = _normal_density(x)
    reached = 1.0 - NORMAL.cdf(bound)
    kernel = _normal_density(_GRID * np.arange(-_REACH, _REACH + 1, dtype=np.float64)) * _GRID
    upper = np.array([0.5 * math.erfc(one / math.sqrt(2)) for one in bound - x])
    for _ in range(1, analyses):
        reached += float(density @ upper) * _GRID
        density = np.convolve(density, kernel)[_REACH : _REACH + cells]
    return min(reached, 1.0)


def _normal_density(x: FloatArray) -> FloatArray:
    result: FloatArray = np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return result
