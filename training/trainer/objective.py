"""The scalar that one iteration minimises, and its gradient: policy loss minus weighted entropy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from training.algorithm.arrays import FloatArray, Segments
from training.algorithm.losses import LossRule, PolicyLoss, policy_loss, step_weights
from training.algorithm.optimizers import Arrays
from training.policies.action import ActionEvaluation, ActionPolicy, EncodedActions
from training.schema import GRPOConfig
from training.trainer.batch import Batch


def loss_rule(config: GRPOConfig) -> LossRule:
    return LossRule(
        loss_type=config.loss_type,
        epsilon=config.epsilon,
        epsilon_high=config.epsilon_high,
        delta=config.delta,
        importance_sampling_level=config.importance_sampling_level,
        max_steps=config.max_steps,
        beta=config.beta,
        kl_estimator=config.kl_estimator,
        use_bias_correction_kl=config.use_bias_correction_kl,
    )


@dataclass(frozen=True, slots=True)
class Measured:
    """The objective under one set of parameters. ``entropy`` is the mean over the steps that are learned from."""

    loss: PolicyLoss
    total: float
    entropy: float


class Objective:
    """L(theta) = policy loss - sum over steps of weight * coefficient * entropy.

    ``advantages`` and ``coefficient`` (the entropy bonus of each step) are (M,), as is ``logp_ref``.
    """

    def __init__(
        self,
        encoded: EncodedActions,
        batch: Batch,
        advantages: FloatArray,
        coefficient: FloatArray,
        logp_ref: FloatArray | None,
        config: GRPOConfig,
    ) -> None:
        self._encoded = encoded
        self._rule = loss_rule(config)
        self._temperature = config.temperature
        self._steps = len(batch.logp_old)
        self._used = np.flatnonzero(batch.learnable)
        self._sequence = batch.steps.trajectory[self._used]
        self._sequences = len(batch.steps.reward)
        self._logp_old = batch.logp_old[self._used]
        self._advantages = advantages[self._used]
        self._logp_ref = None if logp_ref is None else logp_ref[self._used]
        weight = step_weights(Segments(self._sequence, self._sequences), self._rule.loss_type, self._rule.max_steps)
        self._bonus = weight * coefficient[self._used]

    def measure(self, policy: ActionPolicy) -> Measured:
        """The objective without its gradient."""
        return self._measured(policy.evaluate(self._encoded, temperature=self._temperature))

    def gradient(self, policy: ActionPolicy) -> tuple[Measured, Arrays]:
        evaluation = policy.evaluate(self._encoded, temperature=self._temperature)
        measured = self._measured(evaluation)
        return measured, evaluation.backward(self._spread(measured.loss.d_logp), self._spread(-self._bonus))

    def _measured(self, evaluation: ActionEvaluation) -> Measured:
        entropy = evaluation.entropy[self._used]
        loss = policy_loss(
            evaluation.logp[self._used],
            self._logp_old,
            self._advantages,
            self._sequence,
            self._sequences,
            self._rule,
            logp_ref=self._logp_ref,
        )
        mean = float(entropy.mean()) if len(entropy) else 0.0
        return Measured(loss, loss.loss - float(self._bonus @ entropy), mean)

    def _spread(self, values: FloatArray) -> FloatArray:
        """Back to all M steps: 0 for those that are not learned from."""
        full = np.zeros(self._steps)
        full[self._used] = values
        return full
