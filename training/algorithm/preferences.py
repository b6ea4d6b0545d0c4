"""Direct preference optimisation on pairs of decisions with exact log-probabilities (DPO, arXiv 2305.18290)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from training.algorithm.arrays import FloatArray


class PreferenceLoss(NamedTuple):
    """Mean loss over P pairs, its gradients by the two log-probabilities (P,), and the share ranked right."""

    loss: float
    d_chosen: FloatArray
    d_rejected: FloatArray
    accuracy: float


def dpo_loss(
    chosen: FloatArray,
    rejected: FloatArray,
    chosen_ref: FloatArray,
    rejected_ref: FloatArray,
    *,
    beta: float = 0.1,
) -> PreferenceLoss:
    """-log sigmoid(beta [(chosen - chosen_ref) - (rejected - rejected_ref)]), all (P,) log-probabilities of whole
    trajectories (the sum over their decisions). A larger ``beta`` (0.01-0.5) stays nearer to the reference.

    Raises:
        ValueError: there is no pair.
    """
    pairs = len(chosen)
    if pairs == 0:
        raise ValueError("dpo_loss needs at least one pair.")
    margin = beta * ((chosen - chosen_ref) - (rejected - rejected_ref))
    loss = np.logaddexp(0.0, -margin)
    slope = -beta * np.exp(-np.logaddexp(0.0, margin)) / pairs
    return PreferenceLoss(float(loss.mean()), slope, -slope, float((margin > 0).mean()))
