"""Groups of trajectories as flat arrays, their advantages, and back."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from experiences.rollouts.runtimes.action import observation_of
from experiences.rollouts.types import Step, Trajectory, TrajectoryGroup
from training.algorithm.advantages import GroupAdvantages, apply_filter, group_advantages
from training.algorithm.arrays import BoolArray, FloatArray, IntArray
from training.algorithm.credit import CreditRule, FlatSteps, step_advantages
from training.policies.base import Decision
from training.schema import GRPOConfig


@dataclass(slots=True)
class Batch:
    """N trajectories with M usable steps (those that carry a choice and its log-probability).

    ``learnable`` (M,) leaves out the steps of cut-off trajectories where the configuration asks for it;
    ``failed`` (M,) marks the steps of groups without any success.
    """

    decisions: list[Decision]
    logp_old: FloatArray
    steps: FlatSteps
    learnable: BoolArray
    failed: BoolArray


def batch_of(groups: Sequence[TrajectoryGroup], config: GRPOConfig) -> Batch:
    """Flattens ``groups``. Trajectories that could not be scored (NaN) keep their place but give no steps."""
    trajectories, chosen, steps = flattened(groups, config, _usable)
    flat = [step for of_one in chosen for step in of_one]
    cut = np.array([config.mask_truncated and t.truncated for t in trajectories], dtype=np.bool_)
    lost = np.array([not any(t.success for t in g.trajectories) for g in groups], dtype=np.bool_)
    return Batch(
        decisions=[
            Decision(observation_of(t.query, step.state), step.choice)
            for t, of_one in zip(trajectories, chosen, strict=True)
            for step in of_one
            if step.choice is not None
        ],
        logp_old=np.array([step.logprob for step in flat], dtype=np.float64),
        steps=steps,
        learnable=~cut[steps.trajectory],
        failed=lost[steps.step_group],
    )


def flattened(
    groups: Sequence[TrajectoryGroup], config: GRPOConfig, usable: Callable[[Trajectory], list[Step]]
) -> tuple[list[Trajectory], list[list[Step]], FlatSteps]:
    """(trajectories, the ``usable`` steps of each, the same as flat arrays)."""
    trajectories = [trajectory for group in groups for trajectory in group.trajectories]
    sizes = [len(group.trajectories) for group in groups]
    group = np.repeat(np.arange(len(groups)), sizes)
    reward = np.array([t.reward for t in trajectories], dtype=np.float64)
    chosen = [usable(t) for t in trajectories]
    length = np.array([len(steps) for steps in chosen], dtype=np.int64)
    flat = [step for steps in chosen for step in steps]
    index = np.repeat(np.arange(len(trajectories)), length)
    starts = np.cumsum(length) - length
    found = FlatSteps(
        trajectory=index,
        position=np.arange(len(flat)) - starts[index],
        step_reward=_paid(flat, index, reward, length),
        anchor=_anchors(flat, group[index]) if config.credit == "gigpo" else np.zeros(len(flat), dtype=np.int64),
        group=group,
        reward=reward,
        length=length,
    )
    return trajectories, chosen, found


def credit_rule(config: GRPOConfig) -> CreditRule:
    return CreditRule(
        mode=config.credit,
        gamma=config.gamma,
        scale_rewards=config.scale_rewards,
        baseline=config.baseline,
        eps=config.adv_eps,
        ddof=config.std_ddof,
        step_weight=config.step_advantage_w,
        gae_lambda=config.gae_lambda,
    )


def advantages_of(steps: FlatSteps, config: GRPOConfig) -> tuple[GroupAdvantages, FloatArray]:
    """(advantages of the trajectories, filtered advantages of the steps)."""
    whole = group_advantages(
        steps.reward,
        steps.group,
        scale_rewards=config.scale_rewards,
        baseline=config.baseline,
        eps=config.adv_eps,
        ddof=config.std_ddof,
        state_values=None if steps.state_value is None else _initial_values(steps, steps.state_value),
    )
    return whole, apply_filter(step_advantages(steps, whole, credit_rule(config)), config.advantage_filter)


def write_back(groups: Sequence[TrajectoryGroup], steps: FlatSteps, whole: GroupAdvantages, used: FloatArray) -> None:
    """Fills in each group's advantages, normalised rewards and step advantages (0 for steps not used)."""
    starts = np.cumsum(steps.length) - steps.length
    at = 0
    for group in groups:
        span = slice(at, at + len(group.trajectories))
        group.advantages = whole.advantages[span].tolist()
        group.normalized_rewards = whole.normalized[span].tolist()
        group.has_signal = bool(whole.signal[span].any())
        group.step_advantages = []
        for i, trajectory in enumerate(group.trajectories, start=at):
            values = used[starts[i] : starts[i] + steps.length[i]].tolist()
            group.step_advantages.append(values if values else [0.0] * len(trajectory.steps))
        at = span.stop


def _usable(trajectory: Trajectory) -> list[Step]:
    if not np.isfinite(trajectory.reward):
        return []
    return [step for step in trajectory.steps if step.choice is not None and step.logprob is not None]


def _paid(flat: Sequence[Step], index: IntArray, reward: FloatArray, length: IntArray) -> FloatArray:
    """Step rewards; the rest of a trajectory's reward is paid at its last step."""
    paid = np.array([step.reward for step in flat], dtype=np.float64)
    explained = np.bincount(index, weights=paid, minlength=len(reward))
    ends = np.cumsum(length) - 1
    present = length > 0
    missing = (reward - explained)[present]
    paid[ends[present]] += np.where(np.abs(missing) > 1e-9, missing, 0.0)
    return paid


def _anchors(flat: Sequence[Step], group: IntArray) -> IntArray:
    """Equal numbers for steps of one group in the same state: the same last observation and the same past actions."""
    states = (
        zlib.crc32("\x1f".join([" ".join(str(s.state["observation"]).split()), *s.state["done"]]).encode())
        for s in flat
    )
    return (group.astype(np.int64) << 32) + np.fromiter(states, dtype=np.int64, count=len(flat))


def _initial_values(steps: FlatSteps, state_value: FloatArray) -> FloatArray:
    """V of each trajectory's first state, 0 for one without steps: (N,)."""
    values = np.zeros(len(steps.reward))
    first = steps.position == 0
    values[steps.trajectory[first]] = state_value[first]
    return values
