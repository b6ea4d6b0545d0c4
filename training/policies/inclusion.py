"""The distribution of contexts: each lesson is in or out, independently, with a probability of its own.

p_k = f + (1 - 2f) sigmoid(theta_k), with a floor f under both sides, so that each lesson is tried both ways, and every
log-probability is exact and finite.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from training.algorithm.arrays import BoolArray, FloatArray


class Bits(NamedTuple):
    """Log-probability (N, K) of each bit, and its derivative by that lesson's logit (N, K)."""

    logp: FloatArray
    score: FloatArray


def probabilities(theta: FloatArray, floor: float) -> FloatArray:
    """(K,) in [floor, 1 - floor]."""
    return floor + (1 - 2 * floor) * _sigmoid(theta)


def logit_of(p: FloatArray, floor: float) -> FloatArray:
    """The logits (K,) that give these probabilities; what lies outside the floors is drawn to them."""
    share = np.clip((p - floor) / (1 - 2 * floor), 1e-6, 1 - 1e-6)
    return np.log(share) - np.log1p(-share)


def balanced(rng: np.random.Generator, p: FloatArray, group: int) -> BoolArray:
    """Inclusion (group, K) of the siblings of one group: exact Bernoulli(p_k) for each alone, stratified among them, so
    that about group * p_k of them include lesson k (systematic sampling)."""
    k = len(p)
    u = rng.random(k)
    order = rng.permuted(np.broadcast_to(np.arange(group)[:, None], (group, k)).copy(), axis=0)
    inside: BoolArray = ((u[None, :] + order / group) % 1.0) < p[None, :]
    return inside


def bits(z: BoolArray, theta: FloatArray, floor: float) -> Bits:
    """``z`` (N, K), ``theta`` (K,). d log p(z) / d theta = (z - p) / (p (1 - p)) * (1 - 2f) s (1 - s)."""
    s = _sigmoid(theta)
    p = floor + (1 - 2 * floor) * s
    slope = (1 - 2 * floor) * s * (1 - s)
    logp = np.where(z, np.log(p), np.log1p(-p))
    return Bits(logp, (z - p) / (p * (1 - p)) * slope)


def entropy(theta: FloatArray, floor: float) -> tuple[FloatArray, FloatArray]:
    """(entropy of each bit in nats (K,), its derivative by the logit (K,))."""
    s = _sigmoid(theta)
    p = floor + (1 - 2 * floor) * s
    value = -(p * np.log(p) + (1 - p) * np.log1p(-p))
    return value, (np.log1p(-p) - np.log(p)) * (1 - 2 * floor) * s * (1 - s)


def _sigmoid(x: FloatArray) -> FloatArray:
    result: FloatArray = 0.5 * (1 + np.tanh(0.5 * x))
    return result
