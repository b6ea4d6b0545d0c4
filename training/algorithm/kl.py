"""KL(pi || reference) estimated from samples of pi (docs/algorithms.md#kl-to-the-reference).

With x = log pi - log ref: k1 = x, k2 = x^2 / 2, k3 = exp(-x) + x - 1 (Schulman). As a *loss term* k1 has zero
expected gradient, so k1 belongs in the reward; k3 is biased as a loss unless it is multiplied by the
importance ratio (arXiv 2512.21852; TRL ``use_bias_correction_kl``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from training.algorithm.arrays import MAX_LOG_RATIO, FloatArray

KLEstimator = Literal["k1", "k2", "k3"]


class KLTerm(NamedTuple):
    """Value of the estimator at each step and its derivative by that step's log-probability, both (M,)."""

    value: FloatArray
    slope: FloatArray


def kl_term(logp: FloatArray, logp_ref: FloatArray, estimator: KLEstimator) -> KLTerm:
    """The estimator named ``estimator``, all arguments (M,)."""
    return _ESTIMATORS[estimator](np.clip(logp - logp_ref, -MAX_LOG_RATIO, MAX_LOG_RATIO))


_ESTIMATORS: dict[str, Callable[[FloatArray], KLTerm]] = {
    "k1": lambda x: KLTerm(x, np.ones_like(x)),
    "k2": lambda x: KLTerm(x * x / 2, x),
    "k3": lambda x: KLTerm(np.exp(-x) + x - 1, 1 - np.exp(-x)),
}
