"""The value baseline: ridge against its closed form, GAE at its limits."""

from __future__ import annotations

import math

import numpy as np
import pytest

from training.algorithm.arrays import discounted_to_go
from training.algorithm.value import RidgeValue, explained_variance, generalized_advantages, next_values, td_targets

TRAJECTORY = np.array([0, 0, 0, 1, 2, 2])
REWARDS = np.array([0.0, -0.1, 1.0, 0.5, 0.2, -0.3])
VALUES = np.array([0.3, 0.1, 0.7, 0.2, 0.4, 0.0])


def test_the_value_after_the_last_step_is_zero() -> None:
    assert next_values(VALUES, TRAJECTORY).tolist() == [0.1, 0.7, 0.0, 0.0, 0.0, 0.0]
    assert next_values(np.zeros(0), np.zeros(0, dtype=np.int64)).shape == (0,)


def test_gae_is_the_td_error_at_lambda_0_and_the_return_minus_the_value_at_lambda_1() -> None:
    td = generalized_advantages(REWARDS, VALUES, TRAJECTORY, 0.9, 0.0)
    assert td == pytest.approx(td_targets(REWARDS, VALUES, TRAJECTORY, 0.9) - VALUES)
    whole = generalized_advantages(REWARDS, VALUES, TRAJECTORY, 0.9, 1.0)
    assert whole == pytest.approx(discounted_to_go(REWARDS, TRAJECTORY, 0.9) - VALUES)


def test_baseline_solves_the_ridge_problem_with_the_earlier_weights_as_prior() -> None:
    rng = np.random.default_rng(0)
    x, y, columns = rng.normal(size=(40, 5)), rng.normal(size=40), np.array([1, 3, 4, 7, 8])
    value = RidgeValue(l2=2.0)
    prior = np.zeros(5)
    for _ in range(2):
        value.fit(x, columns, y)
        expected = prior + np.linalg.solve(x.T @ x + 2.0 * np.eye(5), x.T @ (y - x @ prior))
        assert value.weights[columns] == pytest.approx(expected, abs=1e-9)
        prior = expected
    assert value.weights[[0, 2, 5, 6]].tolist() == [0.0] * 4
    assert value.predict(x, columns) == pytest.approx(x @ prior)


def test_baseline_stops_after_the_given_number_of_iterations() -> None:
    rng = np.random.default_rng(0)
    x, y, columns = rng.normal(size=(40, 5)), rng.normal(size=40), np.arange(5)
    rough, exact = RidgeValue(l2=1.0), RidgeValue(l2=1.0)
    rough.fit(x, columns, y, iterations=1)
    exact.fit(x, columns, y)
    left = [float(np.square(y - x @ v.weights).sum() + np.square(v.weights).sum()) for v in (rough, exact)]
    assert left[1] < left[0] < float(y @ y)


def test_baseline_learns_only_from_what_could_be_scored() -> None:
    x, columns = np.eye(3), np.arange(3)
    value = RidgeValue(l2=1.0)
    value.fit(x, columns, np.array([1.0, math.nan, 3.0]))
    assert value.weights == pytest.approx([0.5, 0.0, 1.5])
    value.fit(x, columns, np.full(3, math.nan))
    assert value.weights == pytest.approx([0.5, 0.0, 1.5])


def test_baseline_accepts_unseen_features() -> None:
    value = RidgeValue()
    assert value.predict(np.ones((2, 1)), np.array([100])).tolist() == [0.0, 0.0]


def test_repeated_fits_explain_what_is_linear() -> None:
    rng = np.random.default_rng(1)
    value, columns, w = RidgeValue(), np.arange(4), np.array([1.0, -2.0, 0.5, 0.0])
    for _ in range(5):
        x = rng.normal(size=(50, 4))
        value.fit(x, columns, x @ w)
    x = rng.normal(size=(50, 4))
    assert explained_variance(value.predict(x, columns), x @ w) > 0.999


def test_explained_variance_is_one_when_perfect_zero_for_the_mean_and_undefined_without_variance() -> None:
    y = np.array([1.0, 2.0, math.nan, 3.0])
    assert explained_variance(y, y) == 1.0
    assert explained_variance(np.full(4, 2.0), y) == 0.0
    assert math.isnan(explained_variance(y, np.ones(4)))
    assert math.isnan(explained_variance(np.zeros(0), np.zeros(0)))
