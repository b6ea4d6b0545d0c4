"""DPO against its formula, its gradient against finite differences, and which rollouts are a pair."""

from __future__ import annotations

import math

import numpy as np
import pytest

from training.algorithm.preference import best_and_worst, preference_loss

SEQUENCE = np.array([0, 0, 1, 1, 1, 2, 3])
LOGP = np.array([-0.4, -1.2, -0.3, -0.8, -2.0, -0.5, -0.9])
REFERENCE = np.array([-0.5, -1.0, -0.6, -0.7, -1.5, -0.9, -0.4])
CHOSEN, REJECTED = np.array([0, 2]), np.array([1, 3])


def loss(logp: np.ndarray) -> float:
    return preference_loss(logp, REFERENCE, SEQUENCE, CHOSEN, REJECTED, 0.3).loss


def test_the_loss_is_that_of_the_paper() -> None:
    first = 0.3 * ((-1.6 + 1.5) - (-3.1 + 2.8))
    second = 0.3 * ((-0.5 + 0.9) - (-0.9 + 0.4))
    result = preference_loss(LOGP, REFERENCE, SEQUENCE, CHOSEN, REJECTED, 0.3)
    assert result.loss == pytest.approx(np.mean([math.log1p(math.exp(-one)) for one in (first, second)]))
    assert (result.accuracy, result.margin) == (1.0, pytest.approx((first + second) / 2))


def test_the_gradient_is_that_of_finite_differences() -> None:
    step = 1e-6
    for at, slope in enumerate(preference_loss(LOGP, REFERENCE, SEQUENCE, CHOSEN, REJECTED, 0.3).d_logp):
        moved = np.eye(len(LOGP))[at] * step
        assert slope == pytest.approx((loss(LOGP + moved) - loss(LOGP - moved)) / (2 * step), abs=1e-8)


def test_the_best_and_the_worst_of_each_group_with_a_spread_are_a_pair() -> None:
    rewards = np.array([0.2, 0.9, math.nan, 0.9, 0.5, 0.5, 0.1, 0.0])
    chosen, rejected = best_and_worst(rewards, np.array([0, 0, 0, 0, 1, 1, 2, 2]))
    assert (chosen.tolist(), rejected.tolist()) == ([1, 6], [0, 7])
    nothing = preference_loss(LOGP, REFERENCE, SEQUENCE, np.zeros(0, int), np.zeros(0, int), 0.3)
    assert nothing.loss == 0 and not nothing.d_logp.any()
