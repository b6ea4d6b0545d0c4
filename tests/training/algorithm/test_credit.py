"""Multi-step credit: every mode against its formula, written out by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from training.algorithm.advantages import GroupAdvantages, group_advantages
from training.algorithm.arrays import FloatArray, discounted_to_go
from training.algorithm.credit import Credit, CreditRule, FlatSteps, step_advantages, terminal_discount

LENGTHS = [3, 1, 2, 0, 2]
GROUP = np.array([0, 0, 0, 1, 1])
STEP_REWARD = np.array([-0.1, -0.1, 1.0, 0.2, -0.1, 0.4, 0.0, 0.7])


def flat(**changes: Any) -> FlatSteps:
    trajectory = np.repeat(np.arange(5), LENGTHS)
    reward = np.bincount(trajectory, STEP_REWARD, 5)
    reward[3] = math.nan  # a trajectory without steps that could not be scored
    values: dict[str, Any] = {
        "trajectory": trajectory,
        "position": np.concatenate([np.arange(n) for n in LENGTHS]),
        "step_reward": STEP_REWARD,
        "anchor": np.array([1, 2, 3, 1, 1, 4, 9, 8]),
        "group": GROUP,
        "reward": reward,
        "length": np.array(LENGTHS),
    }
    return FlatSteps(**(values | changes))


def advantages(steps: FlatSteps, mode: Credit, **rule: Any) -> tuple[GroupAdvantages, FloatArray]:
    whole = group_advantages(steps.reward, steps.group, eps=0.1)
    return whole, step_advantages(steps, whole, CreditRule(mode=mode, gamma=0.9, eps=0.1, **rule))


def normalised(values: FloatArray, labels: list[int]) -> FloatArray:
    result = np.zeros(len(values))
    for label in set(labels):
        members = np.array(labels) == label
        x = values[members]
        if len(x) > 1 and np.ptp(x) > 0:
            result[members] = (x - x.mean()) / (x.std(ddof=1) + 0.1)
    return result


def test_reward_to_go_sums_rewards_forward_within_a_trajectory() -> None:
    result = discounted_to_go(STEP_REWARD, flat().trajectory, 0.9)
    first = [-0.1 + 0.9 * (-0.1 + 0.9 * 1.0), -0.1 + 0.9 * 1.0, 1.0]
    assert result == pytest.approx([*first, 0.2, -0.1 + 0.9 * 0.4, 0.4, 0.9 * 0.7, 0.7])
    assert discounted_to_go(np.zeros(0), np.zeros(0, dtype=np.int64), 0.9).shape == (0,)


def test_terminal_discount_of_step_i_of_n_is_gamma_to_the_n_minus_i_minus_1() -> None:
    assert terminal_discount(flat(), 0.9) == pytest.approx([0.81, 0.9, 1, 1, 0.9, 1, 0.9, 1])


def test_uniform_gives_each_step_its_trajectorys_advantage() -> None:
    whole, found = advantages(flat(), "uniform")
    assert found.tolist() == whole.advantages[flat().trajectory].tolist()


def test_discounted_keeps_the_sign_and_fades_towards_the_start() -> None:
    whole, found = advantages(flat(), "discounted")
    assert found == pytest.approx(whole.advantages[flat().trajectory] * terminal_discount(flat(), 0.9))


def test_pooled_normalises_the_discounted_final_reward_over_all_steps_of_the_group() -> None:
    steps = flat()
    x = steps.reward[steps.trajectory] * terminal_discount(steps, 0.9)
    assert advantages(steps, "pooled")[1] == pytest.approx(normalised(x, steps.step_group.tolist()))


def test_step_index_compares_steps_at_the_same_place() -> None:
    steps = flat()
    x = steps.reward[steps.trajectory] * terminal_discount(steps, 0.9)
    labels = [10 * int(g) + int(t) for g, t in zip(steps.step_group, steps.position, strict=True)]
    assert advantages(steps, "step_index")[1] == pytest.approx(normalised(x, labels))


def test_reward_to_go_normalises_returns_over_all_steps_of_the_group() -> None:
    steps = flat()
    returns = discounted_to_go(STEP_REWARD, steps.trajectory, 0.9)
    assert advantages(steps, "reward_to_go")[1] == pytest.approx(normalised(returns, steps.step_group.tolist()))


def test_gigpo_adds_a_comparison_among_siblings_in_the_same_state() -> None:
    steps = flat()
    returns = discounted_to_go(STEP_REWARD, steps.trajectory, 0.9)
    whole, found = advantages(steps, "gigpo", step_weight=0.5)
    anchored = normalised(returns, steps.anchor.tolist())
    assert found == pytest.approx(whole.advantages[steps.trajectory] + 0.5 * anchored)
    assert anchored[[1, 2, 5, 6, 7]].tolist() == [0.0] * 5  # a lone state has no other to be compared with


def test_value_is_the_reward_minus_the_value_of_the_initial_state() -> None:
    steps = flat(state_value=np.linspace(0.1, 0.8, 8))
    whole = group_advantages(steps.reward, steps.group)
    result = step_advantages(steps, whole, CreditRule(mode="value", gamma=1.0, gae_lambda=1.0))
    first = steps.position == 0
    expected = steps.reward[steps.trajectory] - np.asarray(steps.state_value)
    assert result[first] == pytest.approx(expected[first])


def test_value_needs_the_value_of_each_state() -> None:
    with pytest.raises(ValueError, match="value of each state"):
        advantages(flat(), "value")


@pytest.mark.parametrize("mode", ["uniform", "discounted", "pooled", "step_index", "reward_to_go", "gigpo", "value"])
def test_every_mode_gives_nothing_to_a_trajectory_that_could_not_be_scored(mode: Credit) -> None:
    reward = flat().reward.copy()
    reward[1] = math.nan
    steps = flat(reward=reward, state_value=np.zeros(8))
    found = advantages(steps, mode)[1]
    assert found[3] == 0.0
    assert np.isfinite(found).all()


@pytest.mark.parametrize("mode", ["pooled", "reward_to_go", "gigpo"])
def test_the_mean_of_the_others_works_step_by_step_too(mode: Credit) -> None:
    steps = flat()
    plain = advantages(steps, mode, baseline="group_mean", scale_rewards="none")[1]
    others = advantages(steps, mode, baseline="loo", scale_rewards="none")[1]
    assert np.abs(others).max() > np.abs(plain).max()


def test_a_rule_that_says_nothing_is_the_documented_one() -> None:
    assert CreditRule() == CreditRule("reward_to_go", 0.99, "group", "group_mean", 0.1, 1, 1.0, 1.0)
