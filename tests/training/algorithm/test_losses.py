"""Policy losses: gradients against finite differences, and what each option promises."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from training.algorithm.arrays import FloatArray, Segments
from training.algorithm.kl import kl_term
from training.algorithm.losses import LossRule, PolicyLoss, policy_loss, step_weights

LENGTHS = [4, 1, 3, 2]
SEQUENCE = np.repeat(np.arange(4), LENGTHS)
RULES: dict[str, dict[str, Any]] = {
    "grpo": {"loss_type": "grpo"},
    "dapo": {"loss_type": "dapo"},
    "bnpo": {"loss_type": "bnpo"},
    "dr_grpo": {"loss_type": "dr_grpo"},
    "delta": {"delta": 1.4},
    "reinforce": {"loss_type": "reinforce"},
    "gspo": {"loss_type": "grpo", "importance_sampling_level": "sequence"},
    "k1": {"beta": 0.1, "kl_estimator": "k1"},
    "k2": {"beta": 0.1, "kl_estimator": "k2", "use_bias_correction_kl": False},
    "k3": {"beta": 0.1, "kl_estimator": "k3", "use_bias_correction_kl": False},
    "k2_corrected": {"beta": 0.1, "kl_estimator": "k2"},
    "k3_corrected": {"beta": 0.1, "kl_estimator": "k3"},
    "k3_sequence": {"beta": 0.1, "importance_sampling_level": "sequence"},
}


def batch(spread: float = 0.3) -> dict[str, FloatArray]:
    rng = np.random.default_rng(5)
    old = -rng.random(10) * 2 - 0.1
    return {
        "logp": old + rng.normal(0, spread, 10),
        "logp_old": old,
        "advantages": rng.normal(0, 1, 4)[SEQUENCE],
        "logp_ref": old + rng.normal(0, 0.5, 10),
    }


def loss_of(rule: LossRule, data: dict[str, FloatArray], **changes: FloatArray) -> PolicyLoss:
    values = data | changes
    return policy_loss(
        values["logp"], values["logp_old"], values["advantages"], SEQUENCE, 4, rule, logp_ref=values["logp_ref"]
    )


@pytest.mark.parametrize("name", RULES)
def test_its_gradient_is_that_of_its_value(name: str) -> None:
    rule, data = LossRule(**RULES[name]), batch()
    found = loss_of(rule, data).d_logp
    for i in range(10):
        step = np.zeros(10)
        step[i] = 1e-6
        up, down = loss_of(rule, data, logp=data["logp"] + step), loss_of(rule, data, logp=data["logp"] - step)
        assert found[i] == pytest.approx((up.loss - down.loss) / 2e-6, abs=1e-8)


def test_cispo_weighs_by_a_ratio_that_is_not_differentiated() -> None:
    data = batch()
    loss = loss_of(LossRule(loss_type="cispo", epsilon_high=1.1), data)
    weight = np.minimum(np.exp(data["logp"] - data["logp_old"]), 1.1) * data["advantages"]
    assert loss.d_logp == pytest.approx(-weight / 10)
    assert loss.loss == pytest.approx(float(np.mean(-weight * data["logp"])))


def test_loss_is_minus_log_prob_times_advantage_with_reinforce() -> None:
    data = batch()
    loss = loss_of(LossRule(loss_type="reinforce"), data)
    assert loss.loss == pytest.approx(-float(np.mean(data["logp"] * data["advantages"])))
    assert loss.loss == pytest.approx(loss.policy_gradient_loss)


@pytest.mark.parametrize("loss_type", ["grpo", "dapo", "bnpo", "dr_grpo"])
def test_on_policy_every_surrogate_has_the_same_direction_as_reinforce_step_by_step(loss_type: Any) -> None:
    data = batch()
    rule = LossRule(loss_type=loss_type)
    loss = loss_of(rule, data, logp=data["logp_old"])
    weight = step_weights(Segments(SEQUENCE, 4), loss_type, rule.max_steps)
    assert loss.d_logp == pytest.approx(-weight * data["advantages"])
    assert loss.approx_kl == 0.0
    assert loss.clip_fraction == 0.0
    assert loss.effective_sample_size == pytest.approx(1.0)


def test_loss_stops_pulling_once_a_ratio_left_the_trust_region() -> None:
    data = batch()
    high = loss_of(LossRule(), data, logp=data["logp_old"] + 1.0, advantages=np.ones(10))
    low = loss_of(LossRule(), data, logp=data["logp_old"] - 1.0, advantages=-np.ones(10))
    back = loss_of(LossRule(), data, logp=data["logp_old"] - 1.0, advantages=np.ones(10))
    assert high.d_logp.tolist() == [0.0] * 10
    assert high.clip_fraction == 1.0
    assert low.d_logp.tolist() == [0.0] * 10
    assert low.clip_fraction == 1.0
    assert (back.d_logp < 0).all()
    assert back.clip_fraction == 0.0


def test_the_dual_clip_bounds_what_a_bad_step_can_cost() -> None:
    data = batch()
    far = {"logp": data["logp_old"] + 3.0, "advantages": -np.ones(10)}
    free, bounded = loss_of(LossRule(), data, **far), loss_of(LossRule(delta=2.0), data, **far)
    assert free.loss == pytest.approx(math.exp(3.0))
    assert bounded.loss == pytest.approx(2.0)
    assert bounded.d_logp.tolist() == [0.0] * 10


def test_weights_follow_the_names() -> None:
    segments = Segments(SEQUENCE, 5)  # the fifth trajectory has no steps
    assert step_weights(segments, "dapo", 20) == pytest.approx(np.full(10, 0.1))
    assert step_weights(segments, "dr_grpo", 20) == pytest.approx(np.full(10, 1 / 100))
    assert step_weights(segments, "grpo", 20) == pytest.approx(np.repeat([1 / 16, 1 / 4, 1 / 12, 1 / 8], LENGTHS))


def test_loss_accepts_a_batch_without_steps() -> None:
    empty = np.zeros(0)
    for name in RULES:
        loss = policy_loss(empty, empty, empty, np.zeros(0, dtype=np.int64), 3, LossRule(**RULES[name]), logp_ref=empty)
        assert loss.loss == 0.0
        assert loss.d_logp.shape == (0,)


def test_a_kl_weight_needs_a_reference() -> None:
    data = batch()
    with pytest.raises(ValueError, match="reference"):
        policy_loss(data["logp"], data["logp_old"], data["advantages"], SEQUENCE, 4, LossRule(beta=0.1))


def test_loss_stays_finite_however_far_the_policy_moved() -> None:
    data = batch()
    loss = loss_of(LossRule(beta=0.1, delta=3.0), data, logp=data["logp_old"] - 1e4)
    assert math.isfinite(loss.loss)
    assert np.isfinite(loss.d_logp).all()


def categorical() -> tuple[FloatArray, FloatArray, float, FloatArray]:
    """A policy and a reference over four actions, the true KL and its gradient by the logits."""
    p, q = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.25, 0.25, 0.3, 0.2])
    ratio = np.log(p / q)
    kl = float(p @ ratio)
    return p, q, kl, p * (ratio - kl)


@pytest.mark.parametrize(("estimator", "bias"), [("k1", 0.0), ("k2", 0.02), ("k3", 0.0)])
def test_kl_estimators_have_the_documented_bias(estimator: Any, bias: float) -> None:
    p, q, kl, _ = categorical()
    assert float(p @ kl_term(np.log(p), np.log(q), estimator).value) == pytest.approx(kl, abs=bias + 1e-12)


def test_as_a_loss_k1_has_no_expected_gradient_and_k2_the_exact_one() -> None:
    p, q, _, exact = categorical()
    score = np.eye(4) - p
    k1, k2, k3 = (kl_term(np.log(p), np.log(q), name).slope for name in ("k1", "k2", "k3"))  # type: ignore[arg-type]
    assert (p * k1) @ score == pytest.approx(0.0, abs=1e-15)
    assert (p * k2) @ score == pytest.approx(exact)
    assert (p * k3) @ score != pytest.approx(exact, rel=0.05)


def test_bias_correction_makes_the_gradient_of_k3_exact() -> None:
    p, q, kl, exact = categorical()
    rule = LossRule(loss_type="reinforce", beta=1.0)
    score = np.eye(4) - p
    one = np.zeros(1, dtype=np.int64)
    slopes, values = [], []
    for action in range(4):
        logp = np.log(p[action : action + 1])
        loss = policy_loss(logp, logp, np.zeros(1), one, 1, rule, logp_ref=np.log(q[action : action + 1]))
        slopes.append(loss.d_logp[0])
        values.append(loss.loss)
    assert p @ values == pytest.approx(kl)
    assert (p * slopes) @ score == pytest.approx(exact)
    plain = replace(rule, use_bias_correction_kl=False)
    loss = policy_loss(np.log(p[:1]), np.log(p[:1]), np.zeros(1), one, 1, plain, logp_ref=np.log(q[:1]))
    assert loss.d_logp[0] != pytest.approx(slopes[0])


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_a_rollout_without_steps_takes_nothing_from_the_gradient_of_its_siblings(level: Any) -> None:
    """TRL divides by all trajectories, and would halve it here."""
    rule = LossRule(loss_type="grpo", importance_sampling_level=level)
    logp, advantages, sequence = np.log([0.5, 0.4, 0.3]), np.array([1.0, 1.0, -1.0]), np.array([0, 0, 1])
    alone = policy_loss(logp, logp, advantages, sequence, 2, rule)
    beside = policy_loss(logp, logp, advantages, sequence, 4, rule)
    assert beside.loss == alone.loss and beside.d_logp.tolist() == alone.d_logp.tolist()
