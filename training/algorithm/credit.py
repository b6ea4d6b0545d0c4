"""Multi-step credit: which step of a trajectory earned how much of its reward
(docs/algorithms.md#credit).

Every mode is a small function of the flat batch; ``step_advantages`` looks the mode up by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from training.algorithm.advantages import Baseline, GroupAdvantages, ScaleRewards, group_advantages
from training.algorithm.arrays import BoolArray, FloatArray, IntArray, discounted_to_go, segments_of
from training.algorithm.value import generalized_advantages

Credit = Literal["reward_to_go", "discounted", "pooled", "step_index", "gigpo", "uniform", "value"]


@dataclass(frozen=True, slots=True)
class FlatSteps:
    """M steps of N trajectories in Q groups, without padding.

    ``trajectory`` (M,) is ascending; ``position`` (M,) counts t within the trajectory; ``step_reward`` (M,)
    sums to ``reward`` (N,) over each scorable trajectory; ``anchor`` (M,) is equal for steps that stood in the
    same state of the same group; ``length`` (N,) may be 0; ``state_value`` (M,) is V(s_t), or None.
    """

    trajectory: IntArray
    position: IntArray
    step_reward: FloatArray
    anchor: IntArray
    group: IntArray
    reward: FloatArray
    length: IntArray
    state_value: FloatArray | None = None

    @property
    def step_group(self) -> IntArray:
        return self.group[self.trajectory]


@dataclass(frozen=True, slots=True)
class CreditRule:
    """Rule of credit assignment. ``eps``, ``ddof`` and ``scale_rewards`` are those of the trajectory's advantage;
    ``step_weight`` is GiGPO's omega; ``gae_lambda`` matters to ``value`` only."""

    mode: Credit = "reward_to_go"
    gamma: float = 0.99
    scale_rewards: ScaleRewards = "group"
    baseline: Baseline = "group_mean"
    eps: float = 0.1
    ddof: int = 1
    step_weight: float = 1.0
    gae_lambda: float = 1.0


def step_advantages(steps: FlatSteps, whole: GroupAdvantages, rule: CreditRule) -> FloatArray:
    """Advantage of each step, (M,); ``whole`` holds those of the trajectories.

    Raises:
        ValueError: ``rule.mode`` is "value" but the batch carries no ``state_value``.
    """
    return _MODES[rule.mode](steps, whole, rule)


def terminal_discount(steps: FlatSteps, gamma: float) -> FloatArray:
    """gamma^(n - t - 1), the weight of step t of n: (M,)."""
    remaining = steps.length[steps.trajectory] - steps.position - 1
    return np.power(gamma, remaining.astype(np.float64))


def _step_index(steps: FlatSteps, whole: GroupAdvantages, rule: CreditRule) -> FloatArray:
    longest = int(steps.position.max(initial=0)) + 1
    return _within(_spread_reward(steps, rule), steps.step_group * longest + steps.position, rule)


def _gigpo(steps: FlatSteps, whole: GroupAdvantages, rule: CreditRule) -> FloatArray:
    """GiGPO (arXiv 2505.10978): steps of siblings in the same state form a sub-group; a lone state gets 0."""
    anchored = _within(_returns(steps, rule), steps.anchor, rule)
    return whole.advantages[steps.trajectory] + rule.step_weight * anchored


def _value(steps: FlatSteps, whole: GroupAdvantages, rule: CreditRule) -> FloatArray:
    """GAE over V(s_t). With lambda = gamma = 1 the first step's advantage is reward - V(initial state)."""
    if steps.state_value is None:
        raise ValueError("credit='value' needs the value of each state.")
    rewards = np.where(_scorable(steps), steps.step_reward, 0.0)
    gae = generalized_advantages(rewards, steps.state_value, steps.trajectory, rule.gamma, rule.gae_lambda)
    return np.where(_scorable(steps), gae, 0.0)


_MODES: dict[str, Callable[[FlatSteps, GroupAdvantages, CreditRule], FloatArray]] = {
    "uniform": lambda steps, whole, rule: whole.advantages[steps.trajectory],
    "discounted": lambda steps, whole, rule: whole.advantages[steps.trajectory] * terminal_discount(steps, rule.gamma),
    "pooled": lambda steps, whole, rule: _within(_spread_reward(steps, rule), steps.step_group, rule),
    "step_index": _step_index,
    "reward_to_go": lambda steps, whole, rule: _within(_returns(steps, rule), steps.step_group, rule),
    "gigpo": _gigpo,
    "value": _value,
}


def _scorable(steps: FlatSteps) -> BoolArray:
    return np.isfinite(steps.reward)[steps.trajectory]


def _spread_reward(steps: FlatSteps, rule: CreditRule) -> FloatArray:
    return steps.reward[steps.trajectory] * terminal_discount(steps, rule.gamma)


def _returns(steps: FlatSteps, rule: CreditRule) -> FloatArray:
    """Discounted rewards to come; NaN in a trajectory that could not be scored."""
    returns = discounted_to_go(steps.step_reward, steps.trajectory, rule.gamma)
    return np.where(_scorable(steps), returns, np.nan)


def _within(values: FloatArray, labels: IntArray, rule: CreditRule) -> FloatArray:
    """Normalises over all steps with the same label. The value baseline replaces a *trajectory's* mean only."""
    baseline: Baseline = "loo" if rule.baseline == "loo" else "group_mean"
    return group_advantages(
        values,
        segments_of(labels).index,
        scale_rewards=rule.scale_rewards,
        baseline=baseline,
        eps=rule.eps,
        ddof=rule.ddof,
    ).advantages
