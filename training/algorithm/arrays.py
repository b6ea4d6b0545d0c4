"""Array types and sums over segments, shared by the whole algorithm.

A *segment* is a set of equally labelled entries: the trajectories of a group, the steps of a trajectory. All
batches are flat (no padding), so every mean, spread or normaliser is a sum over segments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]

MAX_LOG_RATIO = 20.0  # exp(20) is about 5e8: large enough to be clipped by every loss, small enough to stay finite


@dataclass(frozen=True, slots=True)
class Segments:
    """Labels made dense: ``index`` (N,) in 0..count-1, in the order of the sorted labels."""

    index: IntArray
    count: int


def segments_of(labels: ArrayLike) -> Segments:
    """Dense segment numbers for arbitrary integer labels of shape (N,)."""
    values, index = np.unique(np.asarray(labels, dtype=np.int64), return_inverse=True)
    return Segments(index.reshape(-1).astype(np.int64), len(values))


def segment_sum(values: FloatArray, segments: Segments) -> FloatArray:
    """Sum of ``values`` (N,) in each segment: (count,)."""
    total: FloatArray = np.bincount(segments.index, weights=values, minlength=segments.count).astype(np.float64)
    return total


def centred(values: FloatArray, labels: IntArray) -> FloatArray:
    """``values`` (N, K) less the mean of their segment, by the labels (N,) of the segments."""
    segments = segments_of(labels)
    sums = np.zeros((segments.count, values.shape[1]))
    np.add.at(sums, segments.index, values)
    counts = np.bincount(segments.index, minlength=segments.count)
    found: FloatArray = values - (sums / counts[:, None])[segments.index]
    return found


def bounded_exp(log_ratio: FloatArray) -> FloatArray:
    """exp, finite for any finite input."""
    return np.exp(np.clip(log_ratio, -MAX_LOG_RATIO, MAX_LOG_RATIO))


def discounted_to_go(step_reward: FloatArray, trajectory: IntArray, gamma: float) -> FloatArray:
    """G_t = sum over k >= t of gamma^(k-t) r_k within each trajectory: (M,). Backward in time, all
    trajectories at once."""
    total = step_reward.astype(np.float64).copy()
    if len(total) == 0:
        return total
    ends = np.flatnonzero(np.append(trajectory[1:] != trajectory[:-1], True))
    lengths = np.diff(np.append(-1, ends))
    for back in range(1, int(lengths.max())):
        at = ends[lengths > back] - back
        total[at] += gamma * total[at + 1]
    return total
