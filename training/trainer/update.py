"""One iteration's learning: advantages, loss, gradient, clipped optimiser steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from experiences.rollouts.types import TrajectoryGroup
from training.algorithm.advantages import GroupAdvantages
from training.algorithm.arrays import FloatArray, discounted_to_go
from training.algorithm.credit import FlatSteps
from training.algorithm.kl import kl_term
from training.algorithm.optimizers import Optimizer, clip_by_global_norm
from training.algorithm.value import RidgeValue, explained_variance, td_targets
from training.config.schema import GRPOConfig
from training.policies.action import ActionPolicy, EncodedActions
from training.policies.exploration import FailureMemory
from training.trainer.batch import Batch, advantages_of, batch_of, write_back
from training.trainer.objective import Measured, Objective


@dataclass(slots=True)
class UpdateResult:
    """``applied`` counts optimiser steps: 0 where the batch carried no signal. ``not_finite``
    tells that a step was refused because its loss or gradient was not a finite number. ``pruned`` are the lessons that
    evidence took out."""

    metrics: dict[str, float]
    applied: int = 0
    not_finite: bool = False
    warnings: list[str] = field(default_factory=list)
    pruned: list[str] = field(default_factory=list)


def update_policy(
    groups: Sequence[TrajectoryGroup],
    policy: ActionPolicy,
    optimizer: Optimizer,
    value: RidgeValue | None,
    config: GRPOConfig,
    memory: FailureMemory | None = None,
) -> UpdateResult:
    """Learns from ``groups`` in place and writes their advantages into them. ``memory`` is that of the exploring
    policy which acted.

    The parameters move only if some advantage is not 0, or if a group without a success asks for exploration
    (``entropy_coef_failed_group``). A loss or gradient that is not finite is never applied.
    """
    batch = batch_of(groups, config)
    encoded = policy.encode(batch.decisions, memory)
    logp_ref = policy.reference_logp(encoded, temperature=config.temperature) if config.beta > 0 else None
    batch.steps = _prepared(batch, encoded, logp_ref, value, config)
    whole, used = advantages_of(batch.steps, config)
    if not config.exploration.learn_from_failed_groups:
        used = np.where(batch.failed, 0.0, used)
    write_back(groups, batch.steps, whole, used)
    result = UpdateResult(observed(groups, batch, whole))
    failed_coefficient = max(config.entropy_coef, config.entropy_coef_failed_group)
    coefficient = np.where(batch.failed, failed_coefficient, config.entropy_coef)
    objective = Objective(encoded, batch, used, coefficient, logp_ref, config)
    before = objective.measure(policy)
    if _has_signal(batch, used, config):
        _descend(result, objective, policy, optimizer, config)
    after = objective.measure(policy) if result.applied else before
    result.metrics.update(_losses(before, after))
    if value is not None:
        _fit_value(value, batch.steps, encoded, config)
    return result


def _prepared(
    batch: Batch, encoded: EncodedActions, logp_ref: FloatArray | None, value: RidgeValue | None, config: GRPOConfig
) -> FlatSteps:
    """Adds the value of each state, and pays the k1 penalty in the reward where that is configured."""
    steps = batch.steps
    if value is not None:
        steps = replace(steps, state_value=value.predict(encoded.features, encoded.feature_ids))
    if config.kl_estimator == "k1" and logp_ref is not None:
        penalty = config.beta * kl_term(batch.logp_old, logp_ref, "k1").value
        total = np.bincount(steps.trajectory, weights=penalty, minlength=len(steps.reward))
        steps = replace(steps, step_reward=steps.step_reward - penalty, reward=steps.reward - total)
    return steps


def _has_signal(batch: Batch, used: FloatArray, config: GRPOConfig) -> bool:
    explores = config.entropy_coef_failed_group > 0 and bool((batch.failed & batch.learnable).any())
    return explores or bool(np.any(used[batch.learnable] != 0))


def _descend(
    result: UpdateResult, objective: Objective, policy: ActionPolicy, optimizer: Optimizer, config: GRPOConfig
) -> None:
    """``num_iterations`` optimiser steps on the same batch; ends at the first that is not finite."""
    norms, clipped = [], []
    for _ in range(config.num_iterations):
        measured, gradients = objective.gradient(policy)
        gradients, norm = clip_by_global_norm(gradients, config.max_grad_norm)
        if not (math.isfinite(measured.total) and math.isfinite(norm)):
            result.not_finite = True
            break
        optimizer.step(policy.parameters, gradients)
        result.applied += 1
        norms.append(norm)
        clipped.append(measured.loss.clip_fraction)
    if norms:
        result.metrics["grad_norm"] = float(np.mean(norms))
        result.metrics["clip_fraction"] = float(np.mean(clipped))


def _losses(before: Measured, after: Measured) -> dict[str, float]:
    """Loss and entropy of the policy that acted; how far the update moved it."""
    return {
        "loss": _finite(before.total),
        "policy_gradient_loss": _finite(before.loss.policy_gradient_loss),
        "entropy": _finite(before.entropy),
        "approx_kl": _finite(after.loss.approx_kl),
        "kl": _finite(after.loss.kl),
    }


def observed(groups: Sequence[TrajectoryGroup], batch: Batch, whole: GroupAdvantages) -> dict[str, float]:
    """What the rollouts themselves say, before anything is learned."""
    trajectories = [trajectory for group in groups for trajectory in group.trajectories]
    reward = batch.steps.reward[np.isfinite(batch.steps.reward)]
    n = max(len(trajectories), 1)
    return {
        "reward_mean": float(reward.mean()) if len(reward) else 0.0,
        "reward_std": whole.spread,
        "reward_max": float(reward.max()) if len(reward) else 0.0,
        "success_rate": sum(t.success for t in trajectories) / n,
        "frac_reward_zero_std": whole.frac_zero_std,
        "explained_variance": _explained(batch.steps),
        "steps_mean": sum(len(t.steps) for t in trajectories) / n,
        "failed_rollouts": float(sum(bool(t.error) for t in trajectories)),
        "truncated_rate": sum(t.truncated for t in trajectories) / n,
        "trajectories": float(len(trajectories)),
        "steps": float(sum(len(t.steps) for t in trajectories)),
        "grad_norm": 0.0,
        "clip_fraction": 0.0,
    }


def _explained(steps: FlatSteps) -> float:
    """Explained variance of V(initial state); 0 where there is no value function or nothing to explain."""
    if steps.state_value is None:
        return 0.0
    first = steps.position == 0
    return _finite(explained_variance(steps.state_value[first], steps.reward[steps.trajectory[first]]))


def _fit_value(value: RidgeValue, steps: FlatSteps, encoded: EncodedActions, config: GRPOConfig) -> None:
    """Refits V after the advantages were computed. As a baseline of whole rewards it predicts them undiscounted."""
    gamma = config.gamma if config.credit == "value" else 1.0
    if config.value_fit == "td" and steps.state_value is not None:
        targets = td_targets(steps.step_reward, steps.state_value, steps.trajectory, gamma)
    else:
        targets = discounted_to_go(steps.step_reward, steps.trajectory, gamma)
    value.fit(encoded.features, encoded.feature_ids, targets)


def _finite(number: float) -> float:
    """JSON and databases know no NaN; what could not be measured is reported as 0."""
    return number if math.isfinite(number) else 0.0
