"""Early stopping, and its warnings."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from training.algorithm.convergence import EQUAL_ERROR, CollapseGuard, EarlyStopper, Vitals, groups_until_stop

HEALTHY = Vitals(
    success_rate=0.5, reward_mean=0.5, steps_mean=6.0, entropy=1.0, approx_kl=0.01, loss=-0.1, grad_norm=0.3
)


def test_stopper_stops_after_patience_evaluations_without_a_gain() -> None:
    stopper = EarlyStopper(patience=3)
    scores = [0.5, 0.6, 0.6, 0.59, 0.6]
    assert [stopper.update(score, 0.0) for score in scores] == [False, False, False, False, True]


def test_a_gain_within_the_noise_is_no_gain_and_many_small_ones_add_up() -> None:
    stopper = EarlyStopper(patience=2, min_delta=1.0)
    assert not stopper.update(0.50, 0.05)
    assert not stopper.update(0.54, 0.05)
    assert not stopper.update(0.58, 0.05)  # 0.08 above the best that counted
    assert stopper.waited == 0


def test_stopper_counts_a_score_that_is_not_a_number_as_no_gain() -> None:
    stopper = EarlyStopper(patience=1)
    assert stopper.update(math.nan, 0.0)


def chance_of_a_row(n: int, total: int, q: float) -> float:
    """The probability of n failures in a row within ``total`` trials that succeed with probability q, by recursion."""
    none = [1.0] * n + [1 - (1 - q) ** n]  # by number of trials
    for _ in range(n + 1, total + 1):
        none.append(none[-1] - none[-1 - n] * q * (1 - q) ** n)
    return 1 - none[total]


@pytest.mark.parametrize("total", [120, 300, 600, 2_000])
@pytest.mark.parametrize("least", [0.05, 0.1, 0.3])
def test_a_run_whose_groups_differ_often_enough_hardly_ever_stops(total: int, least: float) -> None:
    n = groups_until_stop(total, least)
    if n > total:
        return
    exact = chance_of_a_row(n, total, least)
    assert exact <= EQUAL_ERROR
    assert chance_of_a_row(n, total, 2 * least) < exact / 50  # a run that learns has more of them
    assert (1 - least) ** (n - 1) * (1 + (total - n + 1) * least) > EQUAL_ERROR  # no shorter row would do


def test_a_job_of_the_preset_may_stop_after_a_sixth_and_a_short_one_never_does() -> None:
    assert groups_until_stop(600, 0.1) == 103
    assert groups_until_stop(60, 0.1) > 60
    assert groups_until_stop(600, 0.0) > 600


def test_guard_says_nothing_about_a_healthy_run() -> None:
    guard = CollapseGuard()
    for i in range(200):
        assert guard.update(replace(HEALTHY, success_rate=min(0.2 + i / 200, 1.0), entropy=1.0 - i / 400)) == []


def test_guard_says_nothing_of_low_entropy_once_the_task_is_solved() -> None:
    guard = CollapseGuard()
    guard.update(HEALTHY)
    assert [guard.update(replace(HEALTHY, success_rate=1.0, entropy=0.0)) for _ in range(300)][-1] == []


def test_guard_warns_when_exploration_dies_before_the_task_is_solved() -> None:
    guard = CollapseGuard()
    guard.update(HEALTHY)
    assert "Collapse" in [guard.update(replace(HEALTHY, entropy=0.0)) for _ in range(300)][-1][0]


def test_guard_warns_of_giving_up() -> None:
    guard, seen = CollapseGuard(), set()
    for i in range(200):
        seen.update(guard.update(replace(HEALTHY, steps_mean=12.0 - i / 20)))
    assert any("Giving up" in warning for warning in seen)


def test_guard_warns_of_reward_farming() -> None:
    guard, seen = CollapseGuard(), set()
    for i in range(200):
        seen.update(guard.update(replace(HEALTHY, steps_mean=3.0 + i / 12, reward_mean=0.3 + i / 50)))
    assert any("farming" in warning for warning in seen)


@pytest.mark.parametrize(
    ("fast", "warning"),
    [
        ({"steps_mean": 8.9}, "Giving up"),
        ({"steps_mean": 9.1}, ""),
        ({"steps_mean": 8.9, "success_rate": 0.509}, "Giving up"),
        ({"steps_mean": 8.9, "success_rate": 0.511}, ""),
        ({"steps_mean": 11.1, "reward_mean": 0.311}, "Reward farming"),
        ({"steps_mean": 11.1, "reward_mean": 0.309}, ""),
        ({"steps_mean": 10.9, "reward_mean": 0.311}, ""),
        ({"entropy": 0.049}, "Collapse"),
        ({"entropy": 0.051}, ""),
    ],
)
def test_trends_count_from_a_point_of_success_a_tenth_of_the_steps_and_a_hundredth_of_reward(
    fast: dict[str, float], warning: str
) -> None:
    slow = {"success_rate": 0.5, "steps_mean": 10.0, "reward_mean": 0.3, "entropy": 1.0}
    guard = CollapseGuard(initial_entropy=1.0, updates=1_000, fast=slow | fast, slow=slow)
    unmeasured = replace(HEALTHY, **dict.fromkeys(slow, math.nan))  # moves no average
    assert [found.split(":")[0] for found in guard.update(unmeasured)] == ([warning] if warning else [])


def test_guard_warns_of_divergence_at_once() -> None:
    guard = CollapseGuard()
    assert "not finite" in guard.update(replace(HEALTHY, loss=math.nan))[0]
    assert "not finite" in guard.update(replace(HEALTHY, grad_norm=math.inf))[0]
    assert guard.updates == 0
    assert "KL of 0.50" in guard.update(replace(HEALTHY, approx_kl=0.5))[0]


def test_a_figure_that_could_not_be_measured_moves_no_average() -> None:
    guard = CollapseGuard()
    guard.update(HEALTHY)
    before = dict(guard.fast)
    guard.update(replace(HEALTHY, reward_mean=math.nan))
    assert guard.fast["reward_mean"] == before["reward_mean"]


def test_its_state_is_plain_and_goes_on_from_there() -> None:
    guard = CollapseGuard()
    for _ in range(50):
        guard.update(HEALTHY)
    again = CollapseGuard(**guard.state_dict())
    for _ in range(30):
        assert again.update(replace(HEALTHY, entropy=0.01)) == guard.update(replace(HEALTHY, entropy=0.01))
    assert again == guard
    stopper = EarlyStopper()
    stopper.update(0.5, 0.1)
    assert EarlyStopper(**stopper.state_dict()) == stopper
