"""Turn credit where the agent itself chooses when to stop: no mode may pay for one more step what it is not worth.

The agent stops after each step with the same probability. A baseline with as many terms as the rollout has steps
depends on that choice, and so biases the gradient (verl#7244); the last test has such an estimator, so that these can
fail.
"""

from __future__ import annotations

from typing import NamedTuple, get_args

import numpy as np
import pytest

from training.algorithm.advantages import group_advantages
from training.algorithm.arrays import FloatArray, discounted_to_go
from training.algorithm.credit import Credit, CreditRule, FlatSteps, step_advantages

STOP, LONGEST, GROUPS, SIBLINGS = 0.3, 12, 12_000, 8
MODES = get_args(Credit)


class World(NamedTuple):
    """Rollouts of a world, and the derivative of log pi by the logit of stopping at each of their steps."""

    steps: FlatSteps
    score: FloatArray


def world(*, each: float, outcome: float, noise: float = 0.0) -> World:
    """Every step is paid ``each``, and the end ``outcome`` give or take ``noise``, whenever it comes."""
    rng = np.random.default_rng(7)
    length = np.minimum(rng.geometric(STOP, size=GROUPS * SIBLINGS), LONGEST)
    trajectory = np.repeat(np.arange(len(length)), length)
    position = np.arange(len(trajectory)) - (np.cumsum(length) - length)[trajectory]
    last = position == length[trajectory] - 1
    paid = each + last * (outcome + noise * rng.standard_normal(len(last)))
    group = np.arange(len(length)) // SIBLINGS
    returns = discounted_to_go(paid, trajectory, 1.0)
    steps = FlatSteps(
        trajectory=trajectory,
        position=position,
        step_reward=paid,
        anchor=group[trajectory],  # one state: what was done before changes nothing
        group=group,
        reward=np.bincount(trajectory, paid).astype(np.float64),
        length=length,
        state_value=np.bincount(position, returns)[position] / np.bincount(position)[position],
    )
    return World(steps, np.where(position < LONGEST - 1, np.where(last, 1 - STOP, -STOP), 0.0))


def gradient(made: World, advantages: FloatArray) -> tuple[float, float]:
    """The policy gradient of the logit of stopping, per rollout, and its standard error."""
    each = np.bincount(made.steps.trajectory, advantages * made.score).reshape(GROUPS, SIBLINGS).mean(axis=1)
    return float(each.mean()), float(each.std(ddof=1) / np.sqrt(GROUPS))


def credited(made: World, mode: Credit, scale: str = "none", baseline: str = "group_mean") -> FloatArray:
    options = {"scale_rewards": scale, "baseline": baseline}
    whole = group_advantages(made.steps.reward, made.steps.group, **options)  # type: ignore[arg-type]
    return step_advantages(made.steps, whole, CreditRule(mode=mode, gamma=1.0, **options))  # type: ignore[arg-type]


def true_gradient(each: float) -> float:
    """Of the expected reward, each * (1 - (1 - p)^n) / p, by the logit of p."""
    stays = (1 - STOP) ** LONGEST
    by_p = (LONGEST * stays / (1 - STOP) * STOP - (1 - stays)) / STOP**2
    return each * by_p * STOP * (1 - STOP)


@pytest.mark.parametrize("scale", ["none", "group"])
@pytest.mark.parametrize("mode", MODES)
def test_one_more_step_has_no_advantage_where_the_reward_is_the_same_whenever_one_stops(
    mode: Credit, scale: str
) -> None:
    for outcome in (1.0, -1.0):
        made = world(each=0.0, outcome=outcome, noise=0.3)
        mean, error = gradient(made, credited(made, mode, scale))
        assert error > 0 and abs(mean) < 4 * error, (mode, mean, error)


@pytest.mark.parametrize("each", [-0.1, 0.1])
@pytest.mark.parametrize("mode", MODES)
def test_a_constant_step_reward_pulls_in_proportion_to_its_weight(mode: Credit, each: float) -> None:
    """Baselines that hold the step itself shrink the gradient, (G - 1) / G for the group's mean; none turns it."""
    made = world(each=each, outcome=1.0)
    share = gradient(made, credited(made, mode))[0] / true_gradient(each)
    share /= 2 if mode == "gigpo" else 1  # two advantages, of the whole and of the state, are added
    assert 0.7 < share < 1.03, (mode, share)


def test_with_the_mean_of_the_others_the_gradient_is_exact() -> None:
    made = world(each=-0.1, outcome=1.0)
    mean, error = gradient(made, credited(made, "uniform", baseline="loo"))
    assert abs(mean - true_gradient(-0.1)) < 4 * error
    mean, error = gradient(made, credited(made, "value"))
    assert abs(mean - true_gradient(-0.1)) < 4 * error


def test_rewards_that_are_normalised_first_and_summed_afterwards_would_pay_for_the_length() -> None:
    made = world(each=0.0, outcome=1.0, noise=0.3)
    for label in (made.steps.step_group, made.steps.step_group * LONGEST + made.steps.position):
        normalised = group_advantages(made.steps.step_reward, label, scale_rewards="none").advantages
        mean, error = gradient(made, discounted_to_go(normalised, made.steps.trajectory, 1.0))
        assert mean > 50 * error
