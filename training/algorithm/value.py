"""The value baseline V(s): ridge regression on returns or fitted TD targets, GAE, explained variance.

Fit V on *earlier* batches only, after the advantages of the present batch were computed: a V fitted on the
batch it judges is no longer independent of the actions and biases the gradient
(docs/algorithms.md#value-baseline).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from training.algorithm.arrays import FloatArray, IntArray, discounted_to_go

ValueFit = Literal["regression", "td"]


@dataclass(slots=True)
class RidgeValue:
    """Linear V(x) = x . w, refitted on each batch with the previous weights as the prior mean:
    w = argmin |X w - y|^2 + l2 |w - w_before|^2, solved by conjugate gradients (no D x D matrix).

    A batch brings only the columns that occur in it: ``columns`` (R,) numbers them among all D.
    """

    l2: float = 1.0
    weights: FloatArray = field(default_factory=lambda: np.zeros(0))

    def predict(self, features: FloatArray, columns: IntArray) -> FloatArray:
        """V of each row of ``features`` (M, R): (M,)."""
        self._grow(columns)
        return features @ self.weights[columns]

    def fit(
        self,
        features: FloatArray,
        columns: IntArray,
        targets: FloatArray,
        *,
        iterations: int = 200,
        tol: float = 1e-10,
    ) -> None:
        """One regression on (M, R) features and (M,) targets; rows whose target is not finite are left out."""
        self._grow(columns)
        known = np.isfinite(targets)
        x, y = features[known], targets[known]
        if len(y):
            residual = y - x @ self.weights[columns]
            self.weights[columns] += _ridge_correction(x, residual, self.l2, iterations, tol)

    def _grow(self, columns: IntArray) -> None:
        missing = int(columns.max(initial=-1)) + 1 - len(self.weights)
        if missing > 0:
            self.weights = np.concatenate([self.weights, np.zeros(missing)])


def _ridge_correction(x: FloatArray, residual: FloatArray, l2: float, iterations: int, tol: float) -> FloatArray:
    """d = (X'X + l2 I)^-1 X' residual by conjugate gradients."""
    d = np.zeros(x.shape[1])
    r = x.T @ residual
    p, rho = r.copy(), float(r @ r)
    goal = tol * tol * max(rho, 1e-300)
    for _ in range(iterations):
        if rho <= goal:
            break
        curvature = x.T @ (x @ p) + l2 * p
        alpha = rho / float(p @ curvature)
        d += alpha * p
        r = r - alpha * curvature
        rho, before = float(r @ r), rho
        p = r + (rho / before) * p
    return d


def next_values(values: FloatArray, trajectory: IntArray) -> FloatArray:
    """V(s_{t+1}) of each step, 0 after the last step of a trajectory: (M,)."""
    following = np.append(values[1:], 0.0)
    last = np.append(trajectory[1:] != trajectory[:-1], True)
    return np.where(last[: len(values)], 0.0, following[: len(values)])


def td_targets(rewards: FloatArray, values: FloatArray, trajectory: IntArray, gamma: float) -> FloatArray:
    """r_t + gamma V(s_{t+1}): what TD(0) regresses V(s_t) on. (M,)."""
    return rewards + gamma * next_values(values, trajectory)


def generalized_advantages(
    rewards: FloatArray, values: FloatArray, trajectory: IntArray, gamma: float, lam: float
) -> FloatArray:
    """GAE (arXiv 1506.02438): A_t = delta_t + gamma lam A_{t+1}, delta_t = r_t + gamma V_{t+1} - V_t. (M,).

    lam = 1 gives the return minus V, lam = 0 the TD error.
    """
    delta = td_targets(rewards, values, trajectory, gamma) - values
    return discounted_to_go(delta, trajectory, gamma * lam)


def explained_variance(predicted: FloatArray, observed: FloatArray) -> float:
    """1 - Var(y - V) / Var(y) over finite pairs: 1 is perfect, 0 no better than the mean, NaN where Var(y) = 0."""
    known = np.isfinite(predicted) & np.isfinite(observed)
    y = observed[known]
    spread = float(np.var(y)) if len(y) else 0.0
    return float("nan") if spread == 0.0 else float(1.0 - np.var(y - predicted[known]) / spread)
