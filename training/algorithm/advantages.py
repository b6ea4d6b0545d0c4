"""Group-relative advantages: how much better a reward is than those of its siblings.

GRPO (arXiv 2402.03300), Dr. GRPO (arXiv 2503.20783: no division by the spread), RLOO (arXiv 2402.14740: the
mean of the *others*). Formulas and defaults: docs/algorithms.md#advantages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from training.algorithm.arrays import BoolArray, FloatArray, Segments, segment_sum, segments_of

ScaleRewards = Literal["group", "batch", "none"]
Baseline = Literal["group_mean", "loo", "value"]
AdvantageFilter = Literal["none", "positive"]

ZERO_SPREAD = 1e-12  # rewards of order 1: a smaller spread is rounding, not signal


@dataclass(frozen=True, slots=True)
class GroupAdvantages:
    """Advantages of N entries in their groups.

    ``advantages`` (N,) are exactly 0 where the entry is not finite or its group has no spread;
    ``normalized`` (N,) is (x - mean) / std without any floor; ``signal`` (N,) marks the entries that carry one;
    ``frac_zero_std`` is the share of groups without signal, ``spread`` the mean of the groups' std.
    """

    advantages: FloatArray
    normalized: FloatArray
    signal: BoolArray
    frac_zero_std: float
    spread: float


@dataclass(frozen=True, slots=True)
class _Moments:
    """Mean and spread of each entry's own group, over its finite members."""

    finite: BoolArray
    members: FloatArray
    mean: FloatArray
    std: FloatArray


def group_advantages(
    values: ArrayLike,
    groups: ArrayLike,
    *,  # the arguments of the formula
    scale_rewards: ScaleRewards = "group",
    baseline: Baseline = "group_mean",
    eps: float = 0.1,
    ddof: int = 1,
    state_values: ArrayLike | None = None,
) -> GroupAdvantages:
    """Centres ``values`` (N,) in their ``groups`` (N,) and divides by a spread.

    ``eps`` is the floor under the std (0.1 for rewards of order 1; TRL's constant is 1e-4).
    ``ddof`` 1 is the sample std of TRL and verl, 0 the population std.
    NaN marks what could not be scored: it leaves mean and std and gets advantage 0.
    With ``baseline="value"``, ``state_values`` (N,) takes the place of the group's mean, so that a group of
    one can learn.

    Raises:
        ValueError: ``baseline="value"`` without ``state_values``.
    """
    x = np.asarray(values, dtype=np.float64)
    segments = segments_of(groups)
    moments = _moments(x, segments, ddof)
    degenerate = (moments.std <= ZERO_SPREAD) | (moments.members < 2)
    deviation = np.where(moments.finite, x - moments.mean, 0.0)
    signal = moments.finite & ~degenerate
    if baseline == "value":
        if state_values is None:
            raise ValueError("baseline='value' needs state_values, one per trajectory.")
        raw = np.where(moments.finite, x - np.asarray(state_values, dtype=np.float64), 0.0)
        live = moments.finite & (np.abs(raw) > ZERO_SPREAD)
    elif baseline == "loo":
        raw, live = deviation * moments.members / np.maximum(moments.members - 1, 1), signal
    else:
        raw, live = deviation, signal
    scaled = raw / _scale(x, moments, scale_rewards, eps, ddof)
    std = np.where(degenerate, 1.0, moments.std)
    first = np.unique(segments.index, return_index=True)[1]
    return GroupAdvantages(
        advantages=np.where(live, scaled, 0.0),
        normalized=np.where(signal, deviation / std, 0.0),
        signal=live,
        frac_zero_std=float(degenerate[first].mean()) if len(x) else 0.0,
        spread=float(moments.std[first].mean()) if len(x) else 0.0,
    )


def positive_only(advantages: FloatArray) -> FloatArray:
    """Keeps above-average entries (RAFT, arXiv 2304.06767). Risk-seeking under noisy rewards."""
    return np.maximum(advantages, 0.0)


def apply_filter(advantages: FloatArray, advantage_filter: AdvantageFilter) -> FloatArray:
    return positive_only(advantages) if advantage_filter == "positive" else advantages


def _moments(x: FloatArray, segments: Segments, ddof: int) -> _Moments:
    finite = np.isfinite(x)
    weight = finite.astype(np.float64)
    count = segment_sum(weight, segments)
    mean = segment_sum(np.where(finite, x, 0.0), segments) / np.maximum(count, 1)
    deviation = np.where(finite, x - mean[segments.index], 0.0)
    std = np.sqrt(segment_sum(deviation * deviation, segments) / np.maximum(count - ddof, 1))
    i = segments.index
    return _Moments(finite, count[i], mean[i], std[i])


def _scale(x: FloatArray, moments: _Moments, scale: ScaleRewards, eps: float, ddof: int) -> FloatArray:
    if scale == "none":
        return np.ones_like(x)
    if scale == "group":
        floor = moments.std + eps
        return np.where(floor > 0, floor, 1.0)  # eps = 0 and std = 0: the entry is without signal anyway
    known = x[moments.finite]
    batch_std = float(np.std(known, ddof=ddof)) if len(known) > ddof else 0.0
    return np.full_like(x, (batch_std + eps) or 1.0)
