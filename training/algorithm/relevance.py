"""Effect of each lesson on the reward of each query: a general part, and a part of a neighbourhood.

A lesson says "when ...", and one number for it averages its effect away over all queries that it does not touch. Model,
over rollouts i of query q with drawn inclusions z_i and reward y_i, both centred in their group:
y_i = sum_l z_il f_l(q) + noise, f_l(q) = g_l + c_l . v(q), where v(q) is the query's vector (R,) of length 1,
g_l ~ N(0, general^2) and c_l ~ N(0, local^2 I): a Gaussian process with the kernel general^2 + local^2 v(q) . v(q').
How much is general and how much local is not chosen: all pairs of the grid are averaged by their marginal likelihood
(Rasmussen and Williams 2006, section 2.2 and equation 2.30), so that effects that are the same everywhere stay one
number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np

from training.algorithm.arrays import FloatArray, IntArray, centred

GENERAL: Final = (0.02, 0.05, 0.1, 0.2)  # sd of what holds everywhere, in units of reward
LOCAL: Final = (0.0, 0.04, 0.08, 0.16, 0.3)  # sd of what holds in a neighbourhood; 0: effects are the same everywhere
LEAST_NOISE: Final = 1e-4
NEGLIGIBLE: Final = 1e-3  # weight of a pair that is left out


@dataclass(frozen=True)
class QueryEffects:
    """Posterior of every lesson's coefficients: ``mean`` (K, 1 + R) and ``covariance`` (K, 1 + R, 1 + R), the general
    effect first. ``local`` in [0, 1] is how much of the evidence speaks for effects that differ between queries."""

    mean: FloatArray
    covariance: FloatArray
    local: float

    def at(self, vectors: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(effects, their standard deviations), both (n, K), for queries with ``vectors`` (n, R)."""
        full = with_general(vectors)
        variance = np.einsum("nr,krs,ns->nk", full, self.covariance, full)
        return full @ self.mean.T, np.sqrt(np.maximum(variance, 0.0))


def with_general(vectors: FloatArray) -> FloatArray:
    """(n, 1 + R): each query's vector behind a 1."""
    return np.hstack([np.ones((len(vectors), 1)), vectors])


def query_effects(z: FloatArray, reward: FloatArray, group: IntArray, vectors: FloatArray) -> QueryEffects:
    """From N rollouts: inclusion ``z`` (N, K), ``reward`` (N,), ``group`` (N,) and the vector of each one's query
    ``vectors`` (N, R). Rewards that are NaN are left out; a group of which one is left says nothing.

    Costs a Cholesky factor of K (1 + R) for each pair of the grid: for 60 lessons and 8 directions half a second.
    """
    known = np.isfinite(reward)
    z, reward, group, vectors = z[known].astype(np.float64), reward[known], group[known], vectors[known]
    k, r = z.shape[1], vectors.shape[1]
    deviations = centred(z, group)
    y = centred(reward[:, None], group)[:, 0]
    design = (deviations[:, :, None] * with_general(vectors)[:, None, :]).reshape(len(deviations), k * (1 + r))
    gram, moment = design.T @ design, design.T @ y
    free = max(len(y) - len(np.unique(group)), 1)
    noise = max(float(y @ y) / free, LEAST_NOISE)
    pairs = [(general, local) for general, local in product(GENERAL, LOCAL) if r or not local]
    scales = [_scale(pair, k, r) for pair in pairs]
    fits = [_fit(gram, moment, noise, scale) for scale in scales]
    best = max(evidence for evidence, _ in fits)
    weights = np.array([math.exp(evidence - best) for evidence, _ in fits])
    weights[weights < NEGLIGIBLE * weights.sum()] = 0.0
    weights /= weights.sum()
    local = float(sum(weight for weight, (_, local) in zip(weights, pairs, strict=True) if local))
    kept = [
        (float(weight), coefficients.reshape(k, 1 + r), _covariance(gram, noise, scale, k, 1 + r))
        for weight, (_, coefficients), scale in zip(weights, fits, scales, strict=True)
        if weight
    ]
    return _averaged(kept, local)


def _scale(pair: tuple[float, float], k: int, r: int) -> FloatArray:
    """The prior's standard deviations, (K (1 + R),)."""
    general, local = pair
    return np.tile(np.concatenate([[general], np.full(r, local)]), k)


def _inner(gram: FloatArray, noise: float, scale: FloatArray) -> FloatArray:
    inner: FloatArray = scale[:, None] * gram * scale[None, :] / noise
    inner[np.diag_indices_from(inner)] += 1.0
    return inner


def _fit(gram: FloatArray, moment: FloatArray, noise: float, scale: FloatArray) -> tuple[float, FloatArray]:
    """(log marginal likelihood up to what all priors share, mean of the coefficients) in one prior."""
    inner = _inner(gram, noise, scale)
    wanted = scale * moment / noise
    solved = np.linalg.solve(inner, wanted)
    halves = np.log(np.diag(np.linalg.cholesky(inner))).sum()
    return 0.5 * float(wanted @ solved) - float(halves), scale * solved


def _covariance(gram: FloatArray, noise: float, scale: FloatArray, k: int, size: int) -> FloatArray:
    """The covariance of each lesson's own coefficients, (K, size, size)."""
    whole = scale[:, None] * np.linalg.inv(_inner(gram, noise, scale)) * scale[None, :]
    at = np.arange(k)
    found: FloatArray = whole.reshape(k, size, k, size)[at, :, at, :]
    return found


def _averaged(fits: list[tuple[float, FloatArray, FloatArray]], local: float) -> QueryEffects:
    """The mixture of the fits by their weights; its covariance includes how far their means differ."""
    mean = np.sum([weight * one for weight, one, _ in fits], axis=0)
    away = [(weight, one - mean, covariance) for weight, one, covariance in fits]
    spread = np.sum([weight * (known + by[:, :, None] * by[:, None, :]) for weight, by, known in away], axis=0)
    return QueryEffects(mean, spread, local)
