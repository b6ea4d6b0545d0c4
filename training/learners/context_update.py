"""One iteration's learning of a context policy: advantages, the clipped update of its logits, effects, pruning."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from experiences.learning.lessons.attempts import TOLERANCE, spread
from experiences.learning.lessons.operations import OperationRules
from experiences.learning.lessons.removed import RemovedLessons
from experiences.rollouts.types import TrajectoryGroup
from training.algorithm.advantages import GroupAdvantages, apply_filter, group_advantages
from training.algorithm.arrays import BoolArray, FloatArray, IntArray
from training.algorithm.convergence import groups_until_stop
from training.algorithm.losses import PolicyLoss, policy_loss
from training.algorithm.optimizers import Optimizer, clip_by_global_norm
from training.policies.context import ContextPolicy
from training.policies.inclusion import Bits, bits, entropy, logit_of
from training.schema import GRPOConfig
from training.trainer.batch import batch_of, write_back
from training.trainer.objective import loss_rule
from training.trainer.results import UpdateResult, observed

MIXED_AFTER = 20  # groups after which too few with spread mean that there is nothing to compare


@dataclass(frozen=True, slots=True)
class Drawn:
    """N rollouts as decisions: lessons included (N, K), reward less the price of the context (N,), group (N,)."""

    z: BoolArray
    reward: FloatArray
    group: IntArray


def update_context(
    groups: Sequence[TrajectoryGroup], policy: ContextPolicy, optimizer: Optimizer, config: GRPOConfig, seed: int
) -> UpdateResult:
    """Learns from ``groups`` in place, and writes their advantages into them; each step carries its trajectory's.

    The logits move only if some advantage is not 0: else Adam's momentum alone would move them. A loss or gradient that
    is not finite is not applied. What was learned about effects is kept in any case.
    """
    drawn = drawn_of(groups, policy, config, seed)
    batch = batch_of(groups, config)
    whole = _advantages(drawn, config)
    write_back(groups, batch.steps, whole, np.zeros(len(batch.steps.trajectory)))
    for group in groups:
        group.step_advantages = [
            [advantage] * len(trajectory.steps)
            for advantage, trajectory in zip(group.advantages, group.trajectories, strict=True)
        ]
    policy.compared += len(groups)
    mixed = [spread(group) > TOLERANCE for group in groups]
    policy.mixed += sum(mixed)
    for group, differs in zip(groups, mixed, strict=True):
        policy.equal = 0 if differs else policy.equal + _comparable(group)
    result = UpdateResult(observed(groups, batch.steps, whole))
    pruned = 0
    if policy.selects and policy.live.any():
        policy.learn(drawn.z, drawn.reward, drawn.group, groups)
        _learn(result, policy, optimizer, drawn, apply_filter(whole.advantages, config.advantage_filter), config)
        if config.context.update_rule == "ridge_thompson":
            # Each lesson is included with the probability that it helps: Thompson's rule, with exact log-probabilities.
            policy.parameters["theta"] = logit_of(policy.estimate().above(), policy.floor)
        pruned = len(policy.prune(config.context.prune_z, config.context.prune_information))
    result.metrics.update(_figures(policy, result, pruned))
    return result


def drawn_of(groups: Sequence[TrajectoryGroup], policy: ContextPolicy, config: GRPOConfig, seed: int) -> Drawn:
    """Decisions of the rollouts, derived from their keys, so that the stored ones need not be trusted. ``token_cost``
    is subtracted from the reward per thousand context tokens."""
    trajectories = [trajectory for group in groups for trajectory in group.trajectories]
    size = config.n_trajectories_per_query
    k = len(policy.library)
    z = np.array([policy.drawn(seed, size, trajectory.key) for trajectory in trajectories], dtype=np.bool_).reshape(
        len(trajectories), k
    )
    tokens = np.array([lesson.tokens for lesson in policy.library], dtype=np.float64)
    reward = np.array([trajectory.reward for trajectory in trajectories], dtype=np.float64)
    reward = reward - config.context.token_cost * (z @ tokens) / 1000 if k else reward
    return Drawn(z, reward, np.repeat(np.arange(len(groups)), [len(group.trajectories) for group in groups]))


def rules_of(
    policy: ContextPolicy, config: GRPOConfig, *, functions: frozenset[str], memory: RemovedLessons
) -> OperationRules:
    """Changes that reflection may make: where rewards decide, it neither deletes nor edits lessons with
    measurements."""
    context = config.context
    return OperationRules(
        max_words=context.max_words,
        max_items=context.max_items,
        max_tokens=context.max_tokens,
        max_new=context.max_new,
        may_delete=not policy.selects,
        protected=policy.measured(context.prune_information) if policy.selects else (),
        evictable=policy.weakest_first(),
        functions=functions,
        memory=memory,
    )


def worth_reflecting(policy: ContextPolicy, config: GRPOConfig, iteration: int) -> bool:
    """Whether this iteration asks for lessons: in the part of the run in which they can still be measured, and only
    where groups differ at all (a model that always fails, or never, has nothing to compare)."""
    context = config.context
    if not context.propose or iteration % context.propose_every:
        return False
    if policy.selects and iteration > max(1.0, context.propose_until * config.n_iterations):
        return False
    return not too_even(policy, config)


def too_even(policy: ContextPolicy, config: GRPOConfig) -> bool:
    """True if too few groups had different rewards to learn from them."""
    return policy.compared >= MIXED_AFTER and policy.mixed < config.context.min_mixed * policy.compared


def _comparable(group: TrajectoryGroup) -> bool:
    """True for a group with two known rewards or more: only such rewards can differ."""
    return sum(math.isfinite(trajectory.reward) for trajectory in group.trajectories) > 1


def nothing_to_learn(equal: int, config: GRPOConfig) -> bool:
    """True after so many groups with equal rewards in a row that a run which can learn hardly ever has them
    (``groups_until_stop``). ``equal`` is their number."""
    total = config.n_iterations * config.batch_size
    return config.context.stop_when_equal and equal >= groups_until_stop(total, config.context.min_mixed)


def _advantages(drawn: Drawn, config: GRPOConfig) -> GroupAdvantages:
    return group_advantages(
        drawn.reward,
        drawn.group,
        scale_rewards=config.scale_rewards,
        baseline=config.baseline if config.baseline != "value" else "group_mean",
        eps=config.adv_eps,
        ddof=config.std_ddof,
    )


def _learn(
    result: UpdateResult,
    policy: ContextPolicy,
    optimizer: Optimizer,
    drawn: Drawn,
    advantages: FloatArray,
    config: GRPOConfig,
) -> None:
    """``num_iterations`` clipped steps. Each lesson's bit is one decision of its own, as a token is in a text: the
    ratio of a whole set would be a product of K terms, and explode."""
    live = policy.live
    z = drawn.z[:, live]
    before = bits(z, policy.theta[live], policy.floor)
    loss = _loss(before, before, advantages, config)
    result.metrics.update(_measures(loss, policy, live))
    if not np.any(advantages != 0):
        return
    for _ in range(config.num_iterations):
        now = bits(z, policy.theta[live], policy.floor)
        loss = _loss(now, before, advantages, config)
        gradient = np.zeros(len(policy.theta))
        gradient[live] = (loss.d_logp.reshape(z.shape) * now.score).sum(axis=0)
        if config.entropy_coef:
            gradient[live] -= config.entropy_coef * entropy(policy.theta[live], policy.floor)[1] / max(live.sum(), 1)
        clipped, norm = clip_by_global_norm({"theta": gradient}, config.max_grad_norm)
        if not (math.isfinite(loss.loss) and math.isfinite(norm)):
            result.not_finite = True
            return
        optimizer.step(policy.parameters, clipped)
        result.applied += 1
        result.metrics["grad_norm"] = norm
        result.metrics["clip_fraction"] = loss.clip_fraction
    after = _loss(bits(z, policy.theta[live], policy.floor), before, advantages, config)
    result.metrics["approx_kl"] = after.approx_kl


def _loss(now: Bits, before: Bits, advantages: FloatArray, config: GRPOConfig) -> PolicyLoss:
    n, k = now.logp.shape
    return policy_loss(
        now.logp.reshape(-1),
        before.logp.reshape(-1),
        np.repeat(advantages, k),
        np.repeat(np.arange(n), k),
        n,
        replace(loss_rule(config), beta=0.0),
    )


def _measures(loss: PolicyLoss, policy: ContextPolicy, live: BoolArray) -> dict[str, float]:
    return {
        "loss": loss.loss if math.isfinite(loss.loss) else 0.0,
        "policy_gradient_loss": loss.policy_gradient_loss if math.isfinite(loss.policy_gradient_loss) else 0.0,
        "entropy": float(entropy(policy.theta[live], policy.floor)[0].mean()),
    }


def _figures(policy: ContextPolicy, result: UpdateResult, pruned: int) -> dict[str, float]:
    """Figures of the library for pages; what was not measured is left out."""
    live = policy.live
    probabilities = policy.probabilities[live] if policy.selects else np.ones(int(live.sum()))
    tokens = np.array([lesson.tokens for lesson in policy.library], dtype=np.float64)[live]
    nothing = {"loss": 0.0, "policy_gradient_loss": 0.0, "entropy": 0.0, "approx_kl": 0.0, "kl": 0.0}
    return {
        **{name: value for name, value in nothing.items() if name not in result.metrics},
        "lessons": float(live.sum()),
        "lessons_pruned": float(pruned),
        "told_tokens": float(probabilities @ tokens) if len(tokens) else 0.0,
        "mixed_groups": policy.mixed / max(policy.compared, 1),
    }
