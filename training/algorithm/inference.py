"""Statistical inference that training itself needs: the paired comparison of two arms.

The unit of a comparison is the *query*: the k samples of one query are collapsed to their mean first, since
pooling them makes p-values wrong wherever effects differ between queries (ALGORITHMS 6.1; Miller,
arXiv 2411.00640). Only NumPy and the standard library, so that workers stay small.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from experiences.proportions import NORMAL, Interval, z_value
from training.algorithm.arrays import FloatArray

_CHUNK = 200_000  # resampled numbers held at once, a few megabytes with all temporaries: workers stay small
_EXACT_QUERIES = 14  # 2^14 sign patterns are enumerated; more are sampled
BOOTSTRAP_QUERIES = 15  # of fewer, resampling makes intervals that are too narrow (6 queries: .85 for .95)


class PairedDifference(NamedTuple):
    """Treatment minus control over ``n`` queries: mean, interval (BCa; Student's below 15 queries, infinite of one),
    two-sided sign-flip p-value, the standard deviation of the per-query differences."""

    mean: float
    low: float
    high: float
    p_value: float
    sd: float
    n: int


def paired_difference(
    treatment: ArrayLike,
    control: ArrayLike,
    *,
    confidence: float = 0.95,
    resamples: int = 9_999,
    seed: int = 0,
    reach: float = 1.0,
) -> PairedDifference:
    """Compares two arms on the same queries; each is (n,) or (n, k) with k samples per query.

    NaN samples are left out of a query's mean; a query without any in one arm is left out of the comparison.
    ``reach`` is the largest difference that can be: 1 for rates, infinite for steps, dollars or milliseconds.

    Raises:
        ValueError: the arms have different numbers of queries, or none in common.
    """
    a, b = per_query(treatment), per_query(control)
    if len(a) != len(b):
        raise ValueError(f"The arms must hold the same queries; got {len(a)} and {len(b)}.")
    d = a - b
    d = d[np.isfinite(d)]
    if len(d) == 0:
        raise ValueError("There is no query that both arms answered.")
    if len(d) < BOOTSTRAP_QUERIES:
        interval = student_interval(d, confidence, reach)
    else:
        interval = bca_interval(d, confidence=confidence, resamples=resamples, seed=seed)
    sd = float(np.std(d, ddof=1)) if len(d) > 1 else 0.0
    p = sign_flip_p_value(d, resamples=resamples, seed=seed)
    return PairedDifference(float(d.mean()), interval.low, interval.high, p, sd, len(d))


def per_query(values: ArrayLike) -> FloatArray:
    """Mean over a query's samples: (n, k) or (n,) to (n,). NaN where a query has no sample."""
    x = np.asarray(values, dtype=np.float64)
    x = x.reshape(len(x), -1)
    known = np.isfinite(x)
    count = known.sum(axis=1)
    total = np.where(known, x, 0.0).sum(axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def sign_flip_p_value(differences: FloatArray, *, resamples: int = 9_999, seed: int = 0) -> float:
    """Two-sided p-value of a mean of 0 under random signs: exact up to 14 queries, else with
    (hits + 1) / (resamples + 1), which is never 0 (Phipson & Smyth 2010)."""
    d = np.asarray(differences, dtype=np.float64)
    n = len(d)
    goal = abs(float(d.sum())) - 1e-12 * float(np.abs(d).sum())
    if n <= _EXACT_QUERIES:
        patterns = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
        return float(np.mean(np.abs((2.0 * patterns - 1.0) @ d) >= goal))
    rng = np.random.default_rng((seed, n))
    hits, left = 0, resamples
    while left > 0:
        rows = min(left, max(_CHUNK // n, 1))
        signs = rng.integers(0, 2, size=(rows, n), dtype=np.int8)
        hits += int(np.sum(np.abs((2.0 * signs - 1.0) @ d) >= goal))
        left -= rows
    return (hits + 1) / (resamples + 1)


def student_interval(values: FloatArray, confidence: float = 0.95, reach: float = 1.0) -> Interval:
    """Student's interval of the mean of values in [-reach, reach], cut to that range; all of it where there is one
    value, or where all are equal and so say nothing about their spread."""
    x = np.asarray(values, dtype=np.float64)
    n, mean = len(x), float(x.mean())
    if n < 2 or float(np.ptp(x)) == 0.0:
        return Interval(-reach, reach) if n < 2 or mean != 0.0 else Interval(0.0, 0.0)
    half = student_of_normal(z_value(confidence), n - 1) * float(np.std(x, ddof=1)) / math.sqrt(n)
    return Interval(max(mean - half, -reach), min(mean + half, reach))


def normal_of_student(t: ArrayLike, freedom: int) -> FloatArray:
    """The normal quantile with the same tail as Student's t (Wallace 1959); within .02 from 4 degrees of freedom on."""
    x = np.asarray(t, dtype=np.float64)
    factor = (8 * freedom + 1) / (8 * freedom + 3)
    result: FloatArray = np.sign(x) * factor * np.sqrt(freedom * np.log1p(x * x / freedom))
    return result


def student_of_normal(z: float, freedom: int) -> float:
    """The inverse of ``normal_of_student``."""
    scaled = z * (8 * freedom + 3) / (8 * freedom + 1)
    return math.copysign(math.sqrt(freedom * math.expm1(scaled * scaled / freedom)), z)


def bca_interval(values: FloatArray, *, confidence: float = 0.95, resamples: int = 9_999, seed: int = 0) -> Interval:
    """Bias-corrected and accelerated bootstrap interval of the mean (Efron 1987)."""
    x = np.asarray(values, dtype=np.float64)
    mean = float(x.mean())
    if len(x) < 2 or float(np.ptp(x)) == 0.0:
        return Interval(mean, mean)
    means = np.sort(_bootstrap_means(x, resamples, seed))
    below = (np.sum(means < mean) + np.sum(means <= mean)) / (2 * len(means))
    z0 = NORMAL.inv_cdf(min(max(float(below), 0.5 / len(means)), 1 - 0.5 / len(means)))
    centred = mean - x  # jackknife deviations, up to the factor 1 / (n - 1)
    acceleration = float(np.sum(-(centred**3)) / (6.0 * np.sum(centred**2) ** 1.5))
    z = z_value(confidence)
    low, high = (_bca_quantile(means, z0, acceleration, side) for side in (-z, z))
    return Interval(low, high)


def _bca_quantile(means: FloatArray, z0: float, acceleration: float, z: float) -> float:
    shifted = z0 + (z0 + z) / (1 - acceleration * (z0 + z))
    return float(np.quantile(means, NORMAL.cdf(shifted)))


def _bootstrap_means(x: FloatArray, resamples: int, seed: int) -> FloatArray:
    rng = np.random.default_rng((seed, len(x)))
    parts, left = [], resamples
    while left > 0:
        rows = min(left, max(_CHUNK // len(x), 1))
        parts.append(x[rng.integers(0, len(x), size=(rows, len(x)))].mean(axis=1))
        left -= rows
    return np.concatenate(parts)
