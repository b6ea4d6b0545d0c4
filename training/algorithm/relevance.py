"""Effect of each lesson on the reward of each query: the same everywhere, or only where one word occurs in the query.

A lesson says "when ...", and one number for it averages its effect away over all queries that it does not touch. Model,
over rollouts i of query q with drawn inclusions z_i and reward y_i, both centred in their group:
y_i = sum_l z_il b_l x_h(l)(q) + noise. Each lesson has one effect b_l and one hypothesis h(l) about where that holds:
x_0(q) = 1 everywhere, x_w(q) = 1 where word w occurs. The posterior is a sum of single effects (Wang et al. 2020,
"A simple new approach to variable selection in regression"): one lesson after the other is fitted to what the others
leave, over all hypotheses and sizes of effects. Where nothing speaks for a word, one effect for all queries is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from training.algorithm.arrays import FloatArray, IntArray, centred

SIZES: Final = (0.1, 0.25, 0.5, 1.0)  # standard deviations of effects, in units of that of rewards in a group
EVERYWHERE: Final = 0.3  # prior probability that an effect holds everywhere
NAMED: Final = 0.4  # prior probability of the words that the lesson's own condition names, where it names any
TAUGHT: Final = 0.2  # prior probability of the words of the query that taught the lesson
ALIKE: Final = 0.25  # prior probability of the kind of that query, where its kind is known
SWEEPS: Final = 8
CLOSE: Final = 1e-3  # change of all effects, in units of reward, below which the sweeps end
LEAST_NOISE: Final = 1e-4


@dataclass(frozen=True)
class QueryEffects:
    """Posterior of every lesson's effect: ``mean`` (K, 1 + F), the general part first, and ``spread``: the second
    moments (K, 1 + F) of single effects, or covariances (K, 1 + F, 1 + F) in rules of earlier releases. ``local`` in
    [0, 1] is the share of the effects' squares that belongs to single words."""

    mean: FloatArray
    spread: FloatArray
    local: float

    def at(self, features: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(effects, their standard deviations), both (n, K), for queries with ``features`` (n, F). Shares of queries in
        place of features give the mean over these queries."""
        full = with_general(features)
        mean = full @ self.mean.T
        if self.spread.ndim == 3:
            variance = np.einsum("nr,krs,ns->nk", full, self.spread, full)
        else:
            variance = full**2 @ self.spread.T - mean**2
        return mean, np.sqrt(np.maximum(variance, 0.0))


class QuerySums(NamedTuple):
    """Sums over the rollouts of each of Q kinds of queries: ``gram`` (Q, K, K) and ``moment`` (Q, K) of centred
    inclusions and rewards, with the ``features`` (Q, F) of these queries."""

    gram: FloatArray
    moment: FloatArray
    features: FloatArray


def with_general(features: FloatArray) -> FloatArray:
    """(n, 1 + F): each query's features behind a 1."""
    return np.hstack([np.ones((len(features), 1)), features])


def query_sums(
    z: FloatArray,
    reward: FloatArray,
    group: IntArray,
    query: IntArray,
    features: FloatArray,
    weight: FloatArray | None = None,
) -> QuerySums:
    """From N rollouts: inclusion ``z`` (N, K), ``reward`` (N,), ``group`` (N,) and ``query`` (N,), an index of
    ``features`` (Q, F). A group counts by the ``weight`` (N,) of its rollouts. Rewards that are NaN are left out; a
    group of which one is left says nothing."""
    known = np.isfinite(reward)
    included, y, of = z[known], reward[known], query[known]
    root = np.ones(len(y)) if weight is None else np.sqrt(weight[known])
    deviations = centred(included, group[known]) * root[:, None]
    away = centred(y[:, None], group[known])[:, 0] * root
    k = z.shape[1]
    gram, moment = np.zeros((len(features), k, k)), np.zeros((len(features), k))
    for at in np.unique(of):
        mine = of == at
        gram[at] = deviations[mine].T @ deviations[mine]
        moment[at] = deviations[mine].T @ away[mine]
    return QuerySums(gram, moment, features)


def prior_of(named: FloatArray, taught: FloatArray, alike: FloatArray | None = None) -> FloatArray:
    """The prior probability of each hypothesis (K, 1 + F). ``named`` (K, F) is 1 where a lesson's condition names a
    word, ``taught`` (K, F) where a word occurs in the query that taught the lesson. ``alike`` (K, F) is 1 for the kind
    of that query."""
    rest = np.full((len(named), 1), 1 - EVERYWHERE)
    words = np.zeros(named.shape)
    for marked, chance in ((named, NAMED), (taught, TAUGHT)):
        number = marked.sum(axis=1, keepdims=True)
        words += chance * marked / np.maximum(number, 1.0)
        rest -= chance * (number > 0)
    prior = np.hstack([np.full((len(named), 1), EVERYWHERE), words + rest / named.shape[1]])
    if alike is None:
        return prior
    known = ALIKE * (alike.sum(axis=1, keepdims=True) > 0)
    return (1 - known) * prior + known * np.pad(alike, ((0, 0), (1, 0)))


def query_effects(sums: QuerySums, noise: float, prior: FloatArray) -> QueryEffects:
    """The posterior. ``noise`` is the variance of rewards in a group, ``prior`` (K, 1 + F)."""
    design, k = with_general(sums.features), sums.moment.shape[1]
    noise = max(noise, LEAST_NOISE)
    information = np.einsum("qkk,qh->kh", sums.gram, design**2)[:, :, None]
    sizes = noise * np.array(SIZES) ** 2
    variance = 1 / (information / noise + 1 / sizes)  # (K, 1 + F, sizes)
    before = np.log(prior)[:, :, None] + 0.5 * np.log(variance / sizes)
    mean, second, effect = np.zeros(prior.shape), np.zeros(prior.shape), np.zeros((len(design), k))
    for _ in range(SWEEPS):
        moved = 0.0
        for at in range(k):
            last, effect[:, at] = effect[:, at].copy(), 0.0
            left = sums.moment[:, at] - (sums.gram[:, at] * effect).sum(axis=1)
            found = variance[at] * (left @ design / noise)[:, None]
            evidence = before[at] + 0.5 * found**2 / variance[at]
            weight = np.exp(evidence - evidence.max())
            weight /= weight.sum()
            mean[at] = (weight * found).sum(axis=1)
            second[at] = (weight * (variance[at] + found**2)).sum(axis=1)
            effect[:, at] = design @ mean[at]
            moved = max(moved, float(np.abs(effect[:, at] - last).max(initial=0.0)))
        if moved < CLOSE:
            break
    return QueryEffects(mean, second, float(second[:, 1:].sum() / max(second.sum(), 1e-12)))
