"""Group-relative advantages: what each option promises."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.algorithm.advantages import Baseline, ScaleRewards, apply_filter, group_advantages, positive_only
from training.algorithm.arrays import segments_of

REWARDS = [1.0, 0.0, 0.5, 0.1, 0.3, 0.3, 0.3, 0.3]
GROUPS = [0, 0, 0, 0, 7, 7, 7, 7]
SCALES: tuple[ScaleRewards, ...] = ("group", "batch", "none")


def test_group_advantage_compares_each_reward_with_its_siblings_only() -> None:
    advantages = group_advantages([1.0, 0.0, 5.0, 3.0], [0, 0, 1, 1], scale_rewards="none")
    assert advantages.advantages.tolist() == [0.5, -0.5, 1.0, -1.0]


@pytest.mark.parametrize("scale", SCALES)
def test_group_advantage_gives_exactly_zero_to_a_group_without_spread_and_counts_it(scale: ScaleRewards) -> None:
    advantages = group_advantages(REWARDS, GROUPS, scale_rewards=scale, eps=0.0)
    assert advantages.advantages[4:].tolist() == [0.0] * 4
    assert advantages.normalized[4:].tolist() == [0.0] * 4
    assert not advantages.signal[4:].any()
    assert advantages.signal[:4].all()
    assert advantages.frac_zero_std == 0.5


def test_group_advantage_does_not_mistake_rounding_for_signal() -> None:
    advantages = group_advantages([0.1 + 0.2, 0.3, 0.3], [0, 0, 0], eps=0.0)
    assert advantages.advantages.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("baseline", ["group_mean", "loo"])
def test_group_advantage_leaves_out_what_could_not_be_scored(scale: ScaleRewards, baseline: Baseline) -> None:
    with_gap = group_advantages([1.0, math.nan, 0.0, 0.5], [0] * 4, scale_rewards=scale, baseline=baseline)
    without = group_advantages([1.0, 0.0, 0.5], [0] * 3, scale_rewards=scale, baseline=baseline)
    assert with_gap.advantages[[0, 2, 3]] == pytest.approx(without.advantages, abs=1e-15)
    assert with_gap.advantages[1] == 0.0
    assert not with_gap.signal[1]


def test_group_advantage_gives_nothing_where_only_one_sibling_could_be_scored() -> None:
    advantages = group_advantages([1.0, math.nan], [0, 0])
    assert advantages.advantages.tolist() == [0.0, 0.0]
    assert advantages.frac_zero_std == 1.0


def test_group_advantage_divides_by_the_sample_or_the_population_std_as_configured() -> None:
    sample = group_advantages([1.0, 0.0], [0, 0], eps=0.0, ddof=1).advantages
    population = group_advantages([1.0, 0.0], [0, 0], eps=0.0, ddof=0).advantages
    assert population.tolist() == [1.0, -1.0]
    assert population[0] / sample[0] == pytest.approx(math.sqrt(2))


def test_group_advantage_keeps_step_costs_small_under_the_spread_floor() -> None:
    step_costs = [-0.01, -0.02, -0.03, -0.04]
    floored = group_advantages(step_costs, [0] * 4, eps=0.1).advantages
    bare = group_advantages(step_costs, [0] * 4, eps=1e-4).advantages
    assert np.abs(floored).max() < 0.15
    assert np.abs(bare).max() > 1.0


def test_group_advantage_scales_the_mean_of_the_others_like_rloo() -> None:
    rewards = np.array(REWARDS[:4])
    others = (rewards.sum() - rewards) / 3
    advantages = group_advantages(rewards, [0] * 4, scale_rewards="none", baseline="loo")
    assert advantages.advantages == pytest.approx(rewards - others, abs=1e-15)


def test_group_advantage_divides_by_the_spread_of_all_scorable_rewards_with_batch() -> None:
    rewards = [1.0, 0.0, math.nan, 4.0, 2.0, 3.0]
    advantages = group_advantages(rewards, [0, 0, 0, 1, 1, 1], scale_rewards="batch", eps=0.1)
    std = np.std([1.0, 0.0, 4.0, 2.0, 3.0], ddof=1)
    assert advantages.advantages[3] == pytest.approx(1.0 / (std + 0.1))


def test_group_advantage_lets_a_group_of_one_learn_from_a_value_baseline() -> None:
    advantages = group_advantages([1.0], [0], baseline="value", scale_rewards="none", state_values=[0.25])
    assert advantages.advantages.tolist() == [0.75]
    assert advantages.signal.tolist() == [True]
    with pytest.raises(ValueError, match="state_values"):
        group_advantages([1.0], [0], baseline="value")


def test_group_advantage_normalises_without_the_floor() -> None:
    advantages = group_advantages(REWARDS, GROUPS, eps=0.5)
    known = np.array(REWARDS[:4])
    assert advantages.normalized[:4] == pytest.approx((known - known.mean()) / known.std(ddof=1))


def test_group_advantage_keeps_only_positive_advantages_when_asked() -> None:
    advantages = np.array([0.5, -0.5, 0.0])
    assert positive_only(advantages).tolist() == [0.5, 0.0, 0.0]
    assert apply_filter(advantages, "none") is advantages
    assert apply_filter(advantages, "positive").tolist() == [0.5, 0.0, 0.0]


def test_group_advantage_accepts_an_empty_batch() -> None:
    advantages = group_advantages([], [])
    assert advantages.advantages.shape == (0,)
    assert advantages.frac_zero_std == 0.0


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(-5, 5)), min_size=1, max_size=30), st.sampled_from(SCALES))
def test_group_advantage_sums_to_zero_in_every_group_and_does_not_hang_on_order(
    rows: list[tuple[int, float]], scale: ScaleRewards
) -> None:
    groups, rewards = np.array([g for g, _ in rows]), np.array([r for _, r in rows])
    found = group_advantages(rewards, groups, scale_rewards=scale).advantages
    assert np.bincount(groups, found) == pytest.approx(0.0, abs=1e-9)
    back = np.arange(len(rows))[::-1]
    assert group_advantages(rewards[back], groups[back], scale_rewards=scale).advantages[back] == pytest.approx(
        found, abs=1e-9
    )


def test_labels_of_any_kind_are_numbered_densely() -> None:
    segments = segments_of([9, -2, 9, 4])
    assert segments.index.tolist() == [2, 0, 2, 1]
    assert segments.count == 3


@pytest.mark.parametrize(("baseline", "length"), [("loo", 1.0), ("group_mean", 3 / 4)])
def test_group_advantage_gives_an_unbiased_gradient_up_to_the_known_factor(baseline: Baseline, length: float) -> None:
    """E[g] = p (E[r|a] - J), times (G - 1) / G with the group's own mean."""
    rng = np.random.default_rng(3)
    p, mean_reward, siblings, groups = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.9, 0.5]), 4, 40_000
    arms = rng.choice(3, size=groups * siblings, p=p)
    rewards = mean_reward[arms] + rng.normal(0, 0.3, size=len(arms))
    found = group_advantages(
        rewards, np.repeat(np.arange(groups), siblings), scale_rewards="none", baseline=baseline
    ).advantages
    score = np.eye(3)[arms] - p
    per_group = (found[:, None] * score).reshape(groups, siblings, 3).mean(axis=1)
    exact = p * (mean_reward - p @ mean_reward) * length
    z = (per_group.mean(axis=0) - exact) / (per_group.std(axis=0, ddof=1) / math.sqrt(groups))
    assert np.abs(z).max() < 4


def test_group_advantage_prefers_risk_when_only_positive_advantages_count() -> None:
    """The sure arm is better (0.5 v 0.4), and the filter walks to the gamble."""
    chosen = {}
    for advantage_filter in ("none", "positive"):
        rng, z = np.random.default_rng(0), np.zeros(2)
        for _ in range(4_000):
            p = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
            arms = rng.choice(2, size=8, p=p)
            rewards = np.where(arms == 0, 0.5, (rng.random(8) < 0.4).astype(float))
            advantage = apply_filter(
                group_advantages(rewards, np.zeros(8), scale_rewards="none").advantages,
                advantage_filter,  # type: ignore[arg-type]
            )
            z += 0.2 * (advantage[:, None] * (np.eye(2)[arms] - p)).mean(axis=0)
        chosen[advantage_filter] = float(p[0])
    assert chosen["none"] > 0.9
    assert chosen["positive"] < 0.1


def test_an_entry_that_could_not_be_scored_is_normalised_to_nothing() -> None:
    advantages = group_advantages([1.0, 0.0, math.nan, 2.0, 2.0], [0, 0, 0, 1, 1])
    assert advantages.normalized[2:].tolist() == advantages.advantages[2:].tolist() == [0.0, 0.0, 0.0]
    assert advantages.frac_zero_std == 0.5 and advantages.spread == pytest.approx(math.sqrt(0.5) / 2)
    valued = group_advantages([1.0, math.nan], [0, 1], baseline="value", state_values=[0.5, 0.5])
    assert valued.advantages[1] == valued.normalized[1] == 0.0 and valued.signal.tolist() == [True, False]
