"""One update of weights: credit of turns becomes advantages of tokens, and a loss of log-probabilities becomes the
gradient of each, which a model server applies.

Losses are computed here, in NumPy, by the functions that all learners share. A model server needs none of them: with d
loss / d log-probability fixed, the gradient is that of sum(d loss / d log-probability * log-probability).
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from experiences.rollouts.captured import TokenRow, rows_of
from experiences.rollouts.own_weights import Weights, WeightsTrainer
from experiences.rollouts.types import Step, Trajectory, TrajectoryGroup
from training.algorithm.arrays import FloatArray, IntArray, discounted_to_go
from training.algorithm.credit import FlatSteps
from training.algorithm.losses import policy_loss
from training.algorithm.preference import best_and_worst, preference_loss
from training.algorithm.value import RidgeValue, td_targets
from training.policies.weights import WeightsPolicy
from training.schema import GRPOConfig
from training.trainer.batch import advantages_of, flattened, write_back
from training.trainer.objective import loss_rule
from training.trainer.results import UpdateResult, finite, observed

CRITIC_BITS: Final = 10  # 2^10 hashed words are what a value of states sees


@dataclass(slots=True)
class TokenBatch:
    """The sampled tokens of an iteration, M in all, in the order of ``rows``: who said them (``sequence``, numbers of
    trajectories), in which step of the flat batch (``step``), with which log-probability (``logp_old``), and their
    ``advantages``, all (M,). ``pairs``: the preferred and the other trajectories, where pairs are learned."""

    rows: list[TokenRow]
    sequence: IntArray
    step: IntArray
    logp_old: FloatArray
    advantages: FloatArray
    pairs: tuple[IntArray, IntArray] | None

    @property
    def signal(self) -> bool:
        """True if the batch has anything to learn from."""
        compared = len(self.pairs[0]) > 0 if self.pairs is not None else bool(np.any(self.advantages != 0))
        return compared and len(self.step) > 0

    def at_tokens(self, logprobs: Sequence[Sequence[float]]) -> FloatArray:
        """Log-probabilities of whole rows, at the sampled tokens: (M,)."""
        pairs = zip(self.rows, logprobs, strict=True)
        return np.array([value for row, of in pairs for at, value in zip(row.step, of, strict=True) if at >= 0])

    def per_row(self, values: FloatArray) -> list[list[float]]:
        """Values of the sampled tokens (M,) spread over whole rows, 0 where others wrote."""
        found, at = [], iter(values.tolist())
        for row in self.rows:
            found.append([next(at) if step >= 0 else 0.0 for step in row.step])
        return found


async def update_weights(
    groups: Sequence[TrajectoryGroup],
    policy: WeightsPolicy,
    value: RidgeValue | None,
    trainer: WeightsTrainer,
    config: GRPOConfig,
    *,
    seed: int,
) -> UpdateResult:
    """Learns from ``groups`` and writes their advantages into them. ``policy`` moves when all is done: an interruption
    leaves it as it was.

    Raises:
        Halted: the model server is unavailable, or the budget is used up.
    """
    trajectories, chosen, steps = flattened(groups, config, _usable)
    features, columns = _features(trajectories, chosen) if value is not None else (np.zeros((0, 0)), np.zeros(0, int))
    if value is not None:
        steps = replace(steps, state_value=value.predict(features, columns))
    whole, used = advantages_of(steps, config)
    write_back(groups, steps, whole, used)
    cut = np.array([config.mask_truncated and t.truncated for t in trajectories], dtype=np.bool_)
    pairs = best_and_worst(np.where(cut, np.nan, steps.reward), steps.group) if config.algorithm == "dpo" else None
    batch = _tokens(chosen, steps, np.where(cut[steps.trajectory], 0.0, used), pairs)
    result = UpdateResult(observed(groups, steps, whole))
    result.metrics |= {"tokens": float(len(batch.step)), "token_rows": float(len(batch.rows))}
    result.metrics |= dict.fromkeys(("loss", "policy_gradient_loss", "entropy", "approx_kl", "kl"), 0.0)
    if batch.signal:
        learned = await _descend(result, batch, trainer, policy, config, seed)
        if learned is not None:
            policy.weights = learned
    if value is not None:
        _fit(value, steps, features, columns, config)
    return result


async def _descend(
    result: UpdateResult,
    batch: TokenBatch,
    trainer: WeightsTrainer,
    policy: WeightsPolicy,
    config: GRPOConfig,
    seed: int,
) -> Weights | None:
    """``num_iterations`` steps on one batch; None where none was applied."""
    rule = replace(loss_rule(config), max_steps=config.weights.max_length)
    n = int(batch.sequence.max()) + 1
    reference = policy.reference if config.beta > 0 else None
    ref = None if reference is None else batch.at_tokens(await trainer.logprobs(reference, batch.rows))
    model = await trainer.open(policy.weights, rank=config.weights.lora_rank, seed=seed)
    adam = {
        "learning_rate": config.learning_rate,
        "weight_decay": config.weight_decay,
        "grad_clip_norm": config.max_grad_norm,
    }
    for _ in range(config.num_iterations):
        logp = batch.at_tokens(await trainer.logprobs(model, batch.rows))
        found = policy_loss(logp, batch.logp_old, batch.advantages, batch.sequence, n, rule, logp_ref=ref)
        loss, pull = found.loss, found.d_logp
        if batch.pairs is not None:
            assert ref is not None
            preferred = preference_loss(logp, ref, batch.sequence, *batch.pairs, config.beta)
            loss, pull = preferred.loss, preferred.d_logp
            result.metrics |= {"preference_accuracy": preferred.accuracy, "preference_margin": preferred.margin}
        if not (math.isfinite(loss) and np.isfinite(pull).all()):
            result.not_finite = True
            break
        await trainer.forward_backward(model, batch.rows, batch.per_row(pull))
        moved = await trainer.optim_step(model, adam)
        if moved.get("skipped"):
            result.not_finite = True
            break
        if not result.applied:
            result.metrics |= {"loss": loss, "policy_gradient_loss": found.policy_gradient_loss}
            result.metrics["entropy"] = float(-logp.mean())  # its estimate from what was sampled
        result.applied += 1
        result.metrics |= {
            "grad_norm": finite(moved.get("grad_norm", 0.0)),
            "clip_fraction": found.clip_fraction,
            "approx_kl": finite(found.approx_kl),
            "kl": finite(found.kl),
        }
    learned = await trainer.close(model)
    return learned if result.applied else None


def _usable(trajectory: Trajectory) -> list[Step]:
    """All steps of a rollout of which tokens were captured: those without any (the second call of a tool in one
    message) have a reward, and nothing that is pulled."""
    scored = math.isfinite(trajectory.reward) and any(step.sampled for step in trajectory.steps)
    return list(trajectory.steps) if scored else []


def _tokens(
    chosen: Sequence[Sequence[Step]], steps: FlatSteps, used: FloatArray, pairs: tuple[IntArray, IntArray] | None
) -> TokenBatch:
    """``used``: the advantage of each step."""
    starts = np.cumsum(steps.length) - steps.length
    rows: list[TokenRow] = []
    sampled: list[tuple[int, int, float]] = []
    for number, of_one in enumerate(chosen):
        for row in rows_of(of_one):
            rows.append(row)
            of_row = zip(row.step, row.logprob, strict=True)
            sampled += [(number, int(starts[number]) + at, value) for at, value in of_row if at >= 0]
    step = np.array([one[1] for one in sampled], dtype=np.int64)
    return TokenBatch(
        rows,
        np.array([one[0] for one in sampled], dtype=np.int64),
        step,
        np.array([one[2] for one in sampled], dtype=np.float64),
        used[step],
        pairs,
    )


# -- the critic: a linear value of what was asked and seen -----------------------------------------------------------


def _features(trajectories: Sequence[Trajectory], chosen: Sequence[Sequence[Step]]) -> tuple[FloatArray, IntArray]:
    """(M, R) of the steps, and which of the hashed columns they are (R,): a constant, how far the rollout is, and the
    words of the query and of what was seen last."""
    found = []
    for trajectory, steps in zip(trajectories, chosen, strict=True):
        asked = _hashed(trajectory.query)
        for at, step in enumerate(steps):
            found.append({0, 1 + min(at, 30), *asked, *_hashed(f"{step.state.get('observation', '')}", "seen ")})
    columns = np.array(sorted(set().union(*found)), dtype=np.int64)
    place = {int(column): at for at, column in enumerate(columns)}
    features = np.zeros((len(found), len(columns)))
    for row, of_one in enumerate(found):
        features[row, [place[column] for column in of_one]] = 1.0
    return features, columns


def _hashed(text: str, before: str = "") -> set[int]:
    words = re.findall(r"\w+", text.lower())[:500]
    return {32 + zlib.crc32((before + word).encode()) % (1 << CRITIC_BITS) for word in words}


def _fit(value: RidgeValue, steps: FlatSteps, features: FloatArray, columns: IntArray, config: GRPOConfig) -> None:
    """After the advantages, as for every value (docs/algorithms.md#value-baseline)."""
    gamma = config.gamma if config.credit == "value" else 1.0
    if config.value_fit == "td" and steps.state_value is not None:
        targets = td_targets(steps.step_reward, steps.state_value, steps.trajectory, gamma)
    else:
        targets = discounted_to_go(steps.step_reward, steps.trajectory, gamma)
    value.fit(features, columns, targets)
