"""Settings that a run does not read: they change nothing, are refused at launch, and old rows that name them load."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.context_runs import Finished, learned
from tests.support.simulated_habits import Habits
from tests.support.simulated_model import simulated_server
from tests.support.world import World
from training import schema_sections
from training.config.applicability import counts_for
from training.config.form import changes, fields
from training.config.presets import preset_config
from training.config.validation import ConfigError, parse_config
from training.config.versions import as_stored, read
from training.learners import learner_of
from training.schema import GRPOConfig

WORLD = World(9)
ROWS = WORLD.rows(40, 9)
SHORT = {"n_iterations": 4, "batch_size": 4, "n_trajectories_per_query": 4, "eval_interval": 2}
FOR_ACTIONS: dict[str, Any] = {
    "beta": 0.1, "kl_estimator": "k1", "use_bias_correction_kl": False, "credit": "gigpo", "gamma": 0.5,
    "step_advantage_w": 3.0, "value_fit": "td", "gae_lambda": 0.2, "entropy_coef_failed_group": 0.3,
    "mask_truncated": True, "features": {"bits": 6, "bigrams": True},
    "exploration": {"failure_memory": 2.0, "query_sampling": "prioritised", "learn_from_failed_groups": False},
}  # fmt: skip
BY_GRADIENT: dict[str, Any] = {
    "learning_rate": 0.01, "optimizer": "sgd", "max_grad_norm": 9.0, "weight_decay": 0.5, "loss_type": "grpo",
    "epsilon": 0.5, "epsilon_high": 0.9, "delta": 3.0, "importance_sampling_level": "sequence", "num_iterations": 3,
    "entropy_coef": 0.5, "advantage_filter": "positive",
}  # fmt: skip
OF_SINGLE_LESSONS: dict[str, Any] = {
    "context": {
        "update_rule": "ridge_thompson", "propose_until": 0.1, "prune_z": 1.0, "prune_information": 1.0,
        "ship_confidence": 0.9,
    }
}  # fmt: skip
OF_PAIRS: dict[str, Any] = {
    "dynamic_sampling": True,
    "context": {
        **OF_SINGLE_LESSONS["context"], "propose": False, "propose_every": 3, "reflect_each": 4, "group_tokens": 0,
        "exemplars": 2, "max_lessons": 1, "max_new": 1, "min_mixed": 0.9, "stop_when_equal": False,
        "gate_margin": 0.4, "search_every": 1,
    },
}  # fmt: skip
# What services read, and not the run: money, checkpoints, the split, the proof, the refusal; and what other settings
# switch off.
ELSEWHERE = {
    "max_monthly_budget_usd",
    "max_budget_usd", "checkpoint_interval", "held_out_share", "selection_share", "selection_least", "eval_samples",
    "seed", "context.accept_weak_gate", "context.accept_dropped_context", "context.reuse", "max_num_gen_batches",
    "learner", "warm_start",
}  # fmt: skip


def run(config: dict[str, Any]) -> Finished:
    with simulated_server(WORLD, habits=Habits()) as server:
        return learned(server.base_url, ROWS, SHORT | config, seed=5)


def result(finished: Finished) -> tuple[Any, ...]:
    """The result of a run: its context, each lesson's text and weight, and every reward."""
    policy: Any = finished.state.policy
    rewards = [one.reward for report in finished.reports for group in report.groups for one in group.trajectories]
    weights = np.round(policy.theta if policy.selects else policy.compared, 12).tolist()
    return policy.shipped, [lesson.text for lesson in policy.library], weights, rewards


MORE = pytest.mark.thorough(reason="runs of training for each setting of another rule")


@pytest.mark.slow(reason="runs of training for each setting")
@pytest.mark.parametrize(
    ("base", "ignored"),
    [
        ({}, FOR_ACTIONS),
        pytest.param({"algorithm": "tfgrpo"}, FOR_ACTIONS | BY_GRADIENT | OF_SINGLE_LESSONS, marks=MORE),
        pytest.param(
            {"algorithm": "gepa", "n_iterations": 12, "eval_interval": 6},
            FOR_ACTIONS | BY_GRADIENT | OF_PAIRS,
            marks=MORE,
        ),
        pytest.param({"context": {"update_rule": "ridge_thompson"}}, BY_GRADIENT, marks=MORE),
    ],
)
def test_a_refused_setting_would_have_changed_nothing(base: dict[str, Any], ignored: dict[str, Any]) -> None:
    assert result(run(base)) == result(run(base | ignored))


@pytest.mark.parametrize("algorithm", ["grpo", "tfgrpo", "gepa"])
def test_every_setting_that_counts_is_read_by_a_run(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[str] = set()

    def watched(model: Any, prefix: str) -> None:
        plain = model.__getattribute__

        def noted(self: Any, name: str) -> Any:
            seen.add(prefix + name)
            return plain(self, name)

        monkeypatch.setattr(model, "__getattribute__", noted)

    watched(GRPOConfig, "")
    watched(schema_sections.ContextConfig, "context.")
    watched(schema_sections.EarlyStoppingConfig, "early_stopping.")
    # Groups enough to see whether they are mixed, and a plateau at the second look.
    run({"algorithm": algorithm, "batch_size": 10, "early_stopping": {"patience": 1, "min_delta": 10}})
    counts = {name for name in fields() if counts_for(name, "llm", algorithm) and not name.startswith("shaping.")}
    assert counts - seen - ELSEWHERE == set()


@pytest.mark.parametrize(
    ("asked", "kind", "named"),
    [
        *(({name: value}, "llm", name) for name, value in FOR_ACTIONS.items() if not isinstance(value, dict)),
        ({"exploration": {"query_sampling": "prioritised"}}, "http", "exploration.query_sampling"),
        ({"features": {"bits": 6}}, "llm", "features.bits"),
        ({"algorithm": "tfgrpo", "learning_rate": 0.01}, "llm", "learning_rate"),
        ({"preset": "tfgrpo", "context": {"ship_confidence": 0.9}}, "llm", "context.ship_confidence"),
        ({"preset": "gepa", "context": {"max_new": 9}}, "llm", "context.max_new"),
        ({"context": {"update_rule": "ridge_thompson"}, "optimizer": "sgd"}, "llm", "optimizer"),
        ({"context": {"gate_margin": 0.1}}, "llm", "context.gate_margin"),
        ({"context": {"epochs": 2}}, "action", "context.epochs"),
    ],
)
def test_a_setting_that_changes_nothing_is_refused_with_what_to_do(
    asked: dict[str, Any], kind: str, named: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(asked, runtime=kind)
    (error,) = caught.value.errors
    assert error.field == named and error.message.startswith(f"{named} changes nothing") and "Leave it" in error.message


def test_a_default_value_is_no_wish() -> None:
    """A client that sends whole configurations, those of a preset included, is refused nothing."""
    for preset in ("recommended", "rloo", "flow_spec", "tfgrpo", "gepa"):
        whole = preset_config(preset, "llm").as_dict()
        assert parse_config(whole, runtime="llm")[0].as_dict() == whole
    assert parse_config({"beta": 0.1})[0].beta == 0.1
    paid = {"reward": "shaped", "shaping": {"rule": "potential"}, "gamma": 0.9}
    assert parse_config(paid, runtime="llm")[0].gamma == 0.9
    assert learner_of("llm").unread("gamma", GRPOConfig())


def test_a_stored_configuration_that_names_such_a_setting_still_loads_and_a_copy_of_it_can_be_launched() -> None:
    old = as_stored(GRPOConfig.model_validate(FOR_ACTIONS | {"batch_size": 3}))
    assert read(old).beta == 0.1
    copied = {one.name for one, _, _ in changes(read(old).as_dict(), "llm")}
    assert "batch_size" in copied and not any(learner_of("llm").unread(name, read(old)) for name in copied)
