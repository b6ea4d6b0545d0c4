"""Direct preference optimisation (DPO, arXiv 2305.18290) and its gradient with respect to the log-probabilities.

With d = beta * [(log pi - log ref)(chosen) - (log pi - log ref)(rejected)], the loss of a pair is -log sigmoid(d);
log-probabilities are sums over the tokens of an answer (docs/algorithms.md#preferences).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from training.algorithm.arrays import FloatArray, IntArray


class PreferenceLoss(NamedTuple):
    """``d_logp`` (M,) is d loss / d log-probability; ``accuracy`` the share of pairs whose chosen side is pulled up
    more already, ``margin`` the mean of d."""

    loss: float
    d_logp: FloatArray
    accuracy: float
    margin: float


def preference_loss(
    logp: FloatArray, logp_ref: FloatArray, sequence: IntArray, chosen: IntArray, rejected: IntArray, beta: float
) -> PreferenceLoss:
    """The mean over P pairs. ``logp``, ``logp_ref`` and ``sequence`` are (M,); ``chosen`` and ``rejected`` (P,) are
    numbers of sequences. Without pairs everything is 0."""
    if len(chosen) == 0:
        return PreferenceLoss(0.0, np.zeros(len(logp)), 0.0, 0.0)
    n = int(max(sequence.max(initial=0), chosen.max(), rejected.max())) + 1
    gained = np.bincount(sequence, weights=logp - logp_ref, minlength=n)
    d = beta * (gained[chosen] - gained[rejected])
    pull = -beta * np.exp(-np.logaddexp(0.0, d)) / len(chosen)  # -beta sigmoid(-d) / P
    slope: FloatArray = np.zeros(n)
    np.add.at(slope, chosen, pull)
    np.add.at(slope, rejected, -pull)
    return PreferenceLoss(
        loss=float(np.logaddexp(0.0, -d).mean()),
        d_logp=slope[sequence],
        accuracy=float((d > 0).mean()),
        margin=float(d.mean()),
    )


def best_and_worst(rewards: FloatArray, groups: IntArray) -> tuple[IntArray, IntArray]:
    """(chosen, rejected): of each group with a spread its best and its worst entry, the first of equals. Entries that
    could not be scored (NaN) are left out."""
    pairs = []
    for group in np.unique(groups):
        members = np.flatnonzero((groups == group) & np.isfinite(rewards))
        if len(members) > 1 and np.ptp(rewards[members]) > 0:
            pairs.append((members[rewards[members].argmax()], members[rewards[members].argmin()]))
    found = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]
