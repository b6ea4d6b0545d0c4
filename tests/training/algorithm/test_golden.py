"""The engine against numbers of torch and of TRL's own trainer (golden/make_golden.py made them).

The stored numbers are always compared; where torch and trl can be imported, they are computed again and must be equal.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from tests.training.golden import GOLDEN
from training.algorithm.advantages import group_advantages
from training.algorithm.losses import LossRule, policy_loss
from training.algorithm.optimizers import clip_by_global_norm, make_optimizer
from training.policies.action import ActionEvaluation, EncodedActions

STORED = json.loads(GOLDEN.read_text())
ROUNDING = 1e-12


def named(cases: list[dict[str, Any]]) -> list[Any]:
    return [
        pytest.param(case, id=" ".join(str(case[k]) for k in ("name", "scale_rewards") if k in case)) for case in cases
    ]


@pytest.mark.parametrize("case", named(STORED["advantages"]))
def test_advantages_are_those_of_trl(case: dict[str, Any]) -> None:
    rewards = np.array([np.nan if r is None else r for r in case["rewards"]])
    advantages = group_advantages(rewards, np.arange(8) // 4, scale_rewards=case["scale_rewards"], eps=1e-4)
    # TRL's std takes its Bessel factor in float32
    assert advantages.advantages == pytest.approx(case["advantages"], abs=1e-6)


@pytest.mark.parametrize("case", named(STORED["losses"]))
def test_losses_and_their_gradients_are_those_of_trl(case: dict[str, Any]) -> None:
    sequence = np.repeat(np.arange(len(case["lengths"])), case["lengths"])
    rule = LossRule(**({"epsilon_high": 0.2, "max_steps": case["max_steps"]} | case["options"]))
    loss = policy_loss(
        np.array(case["logp"]),
        np.array(case["logp_old"]),
        np.array(case["advantages"])[sequence],
        sequence,
        len(case["lengths"]),
        rule,
        logp_ref=np.array(case["logp_ref"]),
    )
    assert loss.loss == pytest.approx(case["loss"], abs=ROUNDING)
    assert loss.d_logp == pytest.approx(case["d_logp"], abs=ROUNDING)


@pytest.mark.parametrize("case", named(STORED["optimizers"]))
def test_optimizers_walk_where_those_of_torch_walk(case: dict[str, Any]) -> None:
    optimizer = make_optimizer(case["name"], learning_rate=case["learning_rate"], weight_decay=case["weight_decay"])
    parameters = {"w": np.array(case["start"])}
    for gradient in case["gradients"]:
        optimizer.step(parameters, {"w": np.array(gradient)})
    assert parameters["w"] == pytest.approx(np.array(case["end"]), abs=ROUNDING)


def test_clipping_is_that_of_torch() -> None:
    case = STORED["clip"]
    clipped, norm = clip_by_global_norm(dict(enumerate(map(np.array, case["gradients"]))), case["max_norm"])  # type: ignore[arg-type]
    assert norm == pytest.approx(case["norm"], abs=ROUNDING)
    for i, expected in enumerate(case["clipped"]):
        assert clipped[i] == pytest.approx(np.array(expected), abs=1e-6)  # type: ignore[index]


def test_the_policys_log_probabilities_and_gradients_are_those_of_autograd() -> None:
    case = STORED["policy"]
    encoded = EncodedActions(
        design=np.array(case["design"]),
        rows=np.arange(1, 8),
        state=np.array(case["state"]),
        action=np.array(case["action"]),
        allowed=np.array(case["allowed"]),
        own=np.array(case["own"]),
    )
    weights = np.vstack([np.zeros((1, 4)), np.array(case["weights"])])
    evaluation = ActionEvaluation(encoded, weights, np.array(case["shared"]), case["temperature"])
    assert evaluation.logp == pytest.approx(case["logp"], abs=ROUNDING)
    assert evaluation.entropy == pytest.approx(case["entropy"], abs=ROUNDING)
    result = evaluation.backward(np.array(case["d_logp"]), np.array(case["d_entropy"]))
    assert result["weights"][1:] == pytest.approx(np.array(case["d_weights"]), abs=ROUNDING)
    assert result["own"] == pytest.approx(np.array(case["d_shared"]), abs=ROUNDING)


@pytest.mark.skipif(not (find_spec("torch") and find_spec("trl")), reason="torch and trl are not installed")
@pytest.mark.thorough(reason="loads torch and TRL")
def test_the_stored_numbers_are_what_torch_and_trl_say_today() -> None:
    from tests.training.golden.make_golden import make

    _assert_same(json.loads(json.dumps(make())), STORED)


def _assert_same(made: Any, stored: Any) -> None:
    if isinstance(stored, dict):
        assert made.keys() == stored.keys()
        for key, value in stored.items():
            _assert_same(made[key], value)
    elif isinstance(stored, list):
        assert len(made) == len(stored)
        for one, other in zip(made, stored, strict=True):
            _assert_same(one, other)
    elif isinstance(stored, float):
        assert made == pytest.approx(stored, abs=1e-9)
    else:
        assert made == stored
