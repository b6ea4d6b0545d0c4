"""Policy losses and their gradients with respect to the log-probabilities. They know nothing of the policy.

Clipped surrogate: PPO (arXiv 1707.06347) with the aggregations of GRPO (2402.03300), DAPO (2503.14476), BNPO
and Dr. GRPO (2503.20783); sequence-level ratios: GSPO (2507.18071); CISPO (2506.13585); dual clip: TRL's
``delta`` (INTELLECT-2). ``reinforce`` is -log_prob * advantage. All are minimised
(docs/algorithms.md#losses).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from training.algorithm.arrays import FloatArray, IntArray, Segments, bounded_exp, segment_sum
from training.algorithm.kl import KLEstimator, kl_term

LossType = Literal["dapo", "grpo", "bnpo", "dr_grpo", "cispo", "reinforce"]
ImportanceLevel = Literal["token", "sequence"]


@dataclass(frozen=True, slots=True)
class LossRule:
    """Names and meanings are TRL's. ``max_steps`` is the constant length that ``dr_grpo`` divides by; with
    ``cispo``, ``epsilon_high`` is the cap of the weight itself (verl: 1 + clip_ratio_high)."""

    loss_type: LossType = "dapo"
    epsilon: float = 0.2
    epsilon_high: float = 0.28
    delta: float | None = None
    importance_sampling_level: ImportanceLevel = "token"
    max_steps: int = 20
    beta: float = 0.0
    kl_estimator: KLEstimator = "k3"
    use_bias_correction_kl: bool = True


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """``d_logp`` (M,) is d loss / d log-probability. ``policy_gradient_loss`` = -mean(logp * A): the figure to
    watch, since the surrogate's own value is 0 on-policy by construction."""

    loss: float
    d_logp: FloatArray
    policy_gradient_loss: float
    approx_kl: float
    kl: float
    clip_fraction: float
    effective_sample_size: float


class _Term(NamedTuple):
    """Each step's part of the loss, its derivatives by the importance log-ratio and directly by the
    log-probability, and whether it was clipped."""

    value: FloatArray
    by_ratio: FloatArray
    by_logp: FloatArray
    clipped: FloatArray


def policy_loss(
    logp: FloatArray,
    logp_old: FloatArray,
    advantages: FloatArray,
    sequence: IntArray,
    n_sequences: int,
    rule: LossRule,
    *,  # the arguments of the formula
    logp_ref: FloatArray | None = None,
) -> PolicyLoss:
    """Loss of M steps. All arrays are (M,); ``sequence`` numbers each step's trajectory in 0..n_sequences-1.

    Trajectories without steps are allowed and count only in ``dr_grpo``'s constant normaliser. In ``grpo`` (with
    either level of the ratio) TRL divides by all of them, so that an empty one shrinks the gradient of the others; here
    a rollout may end before its first choice, which is no reason to learn less from its siblings.

    Raises:
        ValueError: ``rule.beta`` > 0 without ``logp_ref``.
    """
    segments = Segments(sequence, n_sequences)
    weight = step_weights(segments, rule.loss_type, rule.max_steps)
    log_ratio = _Level(logp - logp_old, segments, rule.importance_sampling_level)
    ratio = bounded_exp(log_ratio.values)
    surrogate = _SURROGATES.get(rule.loss_type, _clipped)(ratio, logp, advantages, rule)
    loss, by_ratio, by_logp = float(np.sum(weight * surrogate.value)), surrogate.by_ratio, surrogate.by_logp
    if rule.beta > 0:
        penalty = _kl_penalty(logp, logp_ref, ratio, rule)
        loss += float(np.sum(weight * penalty.value))
        by_ratio, by_logp = by_ratio + penalty.by_ratio, by_logp + penalty.by_logp
    slope = weight * by_logp + log_ratio.pulled_back(weight * by_ratio)
    kl = float(np.mean(kl_term(logp, logp_ref, "k3").value)) if logp_ref is not None and len(logp) else 0.0
    return PolicyLoss(
        loss=loss,
        d_logp=slope,
        policy_gradient_loss=float(-np.mean(logp * advantages)) if len(logp) else 0.0,
        approx_kl=float(np.mean(kl_term(logp_old, logp, "k3").value)) if len(logp) else 0.0,
        kl=kl,
        clip_fraction=float(np.mean(surrogate.clipped)) if len(logp) else 0.0,
        effective_sample_size=_effective_sample_size(ratio),
    )


class _Level:
    """The importance log-ratio of each step (M,): its own, or the mean over its sequence (GSPO)."""

    def __init__(self, own: FloatArray, segments: Segments, level: ImportanceLevel) -> None:
        self._segments, self._shared = segments, level == "sequence"
        self._lengths = np.maximum(np.bincount(segments.index, minlength=segments.count), 1)
        self.values = self._mean(own) if self._shared else own

    def pulled_back(self, slope: FloatArray) -> FloatArray:
        """From derivatives by these log-ratios to derivatives by the steps' log-probabilities."""
        return self._mean(slope) if self._shared else slope

    def _mean(self, values: FloatArray) -> FloatArray:
        mean: FloatArray = (segment_sum(values, self._segments) / self._lengths)[self._segments.index]
        return mean


def step_weights(sequences: Segments, loss_type: LossType, max_steps: int) -> FloatArray:
    """The weight of each step in the total, (M,).

    ``grpo``: mean over a trajectory's steps, then over trajectories (favours short successes: a length bias);
    ``dr_grpo``: sum over a constant trajectories * max_steps; all others: mean over all steps.
    """
    steps = len(sequences.index)
    lengths = np.bincount(sequences.index, minlength=sequences.count)
    if loss_type == "grpo":
        return 1.0 / (max(int((lengths > 0).sum()), 1) * lengths[sequences.index].astype(np.float64))
    if loss_type == "dr_grpo":
        return np.full(steps, 1.0 / (max(sequences.count, 1) * max_steps))
    return np.full(steps, 1.0 / max(steps, 1))


def _kl_penalty(logp: FloatArray, logp_ref: FloatArray | None, ratio: FloatArray, rule: LossRule) -> _Term:
    """beta * KL to the reference. k1 is paid in the reward: as a loss its expected gradient is zero."""
    nothing = np.zeros_like(logp)
    if logp_ref is None:
        raise ValueError("beta > 0 needs the reference policy's log-probabilities.")
    if rule.kl_estimator == "k1":
        return _Term(nothing, nothing, nothing, nothing)
    term = kl_term(logp, logp_ref, rule.kl_estimator)
    if not rule.use_bias_correction_kl:
        return _Term(rule.beta * term.value, nothing, rule.beta * term.slope, nothing)
    weighted = rule.beta * ratio
    return _Term(weighted * term.value, weighted * term.value, weighted * term.slope, nothing)


def _clipped(ratio: FloatArray, logp: FloatArray, advantages: FloatArray, rule: LossRule) -> _Term:
    """-min(r A, clip(r, 1 - eps, 1 + eps_high) A), the first r bounded by delta where one is given."""
    low, high = 1 - rule.epsilon, 1 + rule.epsilon_high
    bounded = ratio if rule.delta is None else np.minimum(ratio, rule.delta)
    free, clipped = bounded * advantages, np.clip(ratio, low, high) * advantages
    pull = ratio * advantages  # d(ratio * A) / d(log-ratio)
    free_slope = pull if rule.delta is None else pull * (ratio < rule.delta)
    clipped_slope = pull * ((ratio > low) & (ratio < high))
    taken = free <= clipped
    outside = ((ratio < low) & (advantages < 0)) | ((ratio > high) & (advantages > 0))
    slope = -np.where(taken, free_slope, clipped_slope)
    return _Term(-np.minimum(free, clipped), slope, np.zeros_like(slope), outside.astype(np.float64))


def _cispo(ratio: FloatArray, logp: FloatArray, advantages: FloatArray, rule: LossRule) -> _Term:
    """-stop_gradient(min(r, cap)) A log pi: bounds the weight, and never kills a step's gradient."""
    weight = np.minimum(ratio, rule.epsilon_high) * advantages
    capped = (ratio > rule.epsilon_high) & (advantages > 0)
    return _Term(-weight * logp, np.zeros_like(logp), -weight, capped.astype(np.float64))


def _reinforce(ratio: FloatArray, logp: FloatArray, advantages: FloatArray, rule: LossRule) -> _Term:
    return _Term(-advantages * logp, np.zeros_like(logp), -advantages, np.zeros_like(logp))


_SURROGATES: dict[str, Callable[[FloatArray, FloatArray, FloatArray, LossRule], _Term]] = {
    "cispo": _cispo,
    "reinforce": _reinforce,
}


def _effective_sample_size(ratio: FloatArray) -> float:
    """(sum w)^2 / sum w^2 as a share of M: 1 on-policy, towards 0 as few steps carry all the weight."""
    if len(ratio) == 0:
        return 1.0
    return float(ratio.sum() ** 2 / (len(ratio) * np.square(ratio).sum()))
