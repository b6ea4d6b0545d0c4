"""Optimisers: resumable to the bit, and clipped as configured. Their numbers are compared with torch in test_golden."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from training.algorithm.optimizers import SGD, OptimizerName, clip_by_global_norm, global_norm, make_optimizer

NAMES: tuple[OptimizerName, ...] = ("sgd", "adam", "adamw")


def gradients(n: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(2)
    return [{"w": rng.normal(size=(3, 2)), "b": rng.normal(size=2)} for _ in range(n)]


def start() -> dict[str, Any]:
    return {"w": np.ones((3, 2)), "b": np.zeros(2)}


@pytest.mark.parametrize("name", NAMES)
def test_optimizer_goes_on_bit_for_bit_from_its_stored_state(name: OptimizerName) -> None:
    whole, parameters = make_optimizer(name, learning_rate=0.05, weight_decay=0.01), start()
    resumed, copy = make_optimizer(name, learning_rate=0.05, weight_decay=0.01), start()
    for i, gradient in enumerate(gradients(20)):
        whole.step(parameters, gradient)
        resumed.step(copy, gradient)
        if i == 9:
            state = resumed.state_dict()
            resumed = make_optimizer(name, learning_rate=0.05, weight_decay=0.01)
            resumed.load_state_dict(state)
    assert all(np.array_equal(parameters[key], copy[key]) for key in parameters)


@pytest.mark.parametrize("name", NAMES)
def test_a_stored_state_does_not_change_with_later_steps(name: OptimizerName) -> None:
    optimizer, parameters = make_optimizer(name, learning_rate=0.05), start()
    optimizer.step(parameters, gradients(1)[0])
    state = {key: np.array(value) for key, value in optimizer.state_dict().items()}
    held = optimizer.state_dict()
    optimizer.step(parameters, gradients(2)[1])
    assert all(np.array_equal(state[key], held[key]) for key in state)


@pytest.mark.parametrize("name", NAMES)
def test_rows_that_join_later_fare_as_if_they_had_been_there_with_zero_gradients(name: OptimizerName) -> None:
    grown, dense = make_optimizer(name, learning_rate=0.05), make_optimizer(name, learning_rate=0.05)
    small, large = {"w": np.zeros((2, 2))}, {"w": np.zeros((3, 2))}
    for i, gradient in enumerate(gradients(6)):
        w = gradient["w"].copy()
        if i < 3:
            w[2] = 0.0
            grown.step(small, {"w": w[:2]})
        else:
            if len(small["w"]) == 2:
                small = {"w": np.vstack([small["w"], np.zeros((1, 2))])}
            grown.step(small, {"w": w})
        dense.step(large, {"w": w})
    assert np.array_equal(small["w"], large["w"])


def test_adam_keeps_moving_without_a_gradient_which_is_why_an_empty_batch_must_not_step() -> None:
    optimizer, parameters = make_optimizer("adam", learning_rate=0.05), {"w": np.zeros(1)}
    for _ in range(5):
        optimizer.step(parameters, {"w": np.ones(1)})
    before = float(parameters["w"][0])
    for _ in range(20):
        optimizer.step(parameters, {"w": np.zeros(1)})
    assert float(parameters["w"][0]) < 2 * before < 0


def test_momentum_adds_up() -> None:
    optimizer, parameters = SGD(learning_rate=1.0, momentum=0.5), {"w": np.zeros(1)}
    for _ in range(2):
        optimizer.step(parameters, {"w": np.ones(1)})
    assert parameters["w"].tolist() == [-2.5]


def test_clipping_bounds_the_joint_norm_and_reports_the_one_before() -> None:
    gradient = {"a": np.array([3.0]), "b": np.array([[4.0]])}
    clipped, norm = clip_by_global_norm(gradient, 1.0)
    assert norm == 5.0
    assert global_norm(clipped) == pytest.approx(1.0, abs=1e-6)
    same, norm = clip_by_global_norm(gradient, 5.0)
    assert same["a"] is gradient["a"]
    assert norm == 5.0


def test_clipping_passes_a_norm_that_is_not_finite_on_to_be_refused() -> None:
    _, norm = clip_by_global_norm({"a": np.array([np.nan])}, 1.0)
    assert np.isnan(norm)
