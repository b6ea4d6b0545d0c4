"""One iteration's learning: advantages, loss, gradient, clipped optimiser steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from experiences.rollouts.types import TrajectoryGroup
from training.algorithm.arrays import FloatArray, discounted_to_go
from training.algorithm.credit import FlatSteps
from training.algorithm.kl import kl_term
from training.algorithm.optimizers import Optimizer, clip_by_global_norm
from training.algorithm.value import RidgeValue, td_targets
from training.policies.action import ActionPolicy, EncodedActions
from training.policies.exploration import FailureMemory
from training.schema import GRPOConfig
from training.trainer.batch import Batch, advantages_of, batch_of, write_back
from training.trainer.objective import Measured, Objective
from training.trainer.results import UpdateResult, finite, observed


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
    result = UpdateResult(observed(groups, batch.steps, whole))
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
        "loss": finite(before.total),
        "policy_gradient_loss": finite(before.loss.policy_gradient_loss),
        "entropy": finite(before.entropy),
        "approx_kl": finite(after.loss.approx_kl),
        "kl": finite(after.loss.kl),
    }


def _fit_value(value: RidgeValue, steps: FlatSteps, encoded: EncodedActions, config: GRPOConfig) -> None:
    """Refits V after the advantages were computed. As a baseline of whole rewards it predicts them undiscounted."""
    gamma = config.gamma if config.credit == "value" else 1.0
    if config.value_fit == "td" and steps.state_value is not None:
        targets = td_targets(steps.step_reward, steps.state_value, steps.trajectory, gamma)
    else:
        targets = discounted_to_go(steps.step_reward, steps.trajectory, gamma)
    value.fit(encoded.features, encoded.feature_ids, targets)
