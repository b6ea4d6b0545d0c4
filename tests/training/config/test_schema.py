"""One schema for every interface: ranges, presets, and messages that say what to do."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from experiences.rollouts.rewards import rewards
from training.config.presets import PRESETS, preset_config, preset_values
from training.config.validation import ConfigError, FieldError, parse_config, parse_queries, query_warnings
from training.learners.action import ActionLearner
from training.schema import GRPOConfig


def refused(raw: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        parse_config(raw)
    assert all(error.message in str(caught.value) for error in caught.value.errors)
    return {error.field: error.message for error in caught.value.errors}


def test_the_source_documents_defaults_hold() -> None:
    config = GRPOConfig()
    assert (config.n_iterations, config.batch_size, config.n_trajectories_per_query) == (1000, 16, 8)
    assert (config.learning_rate, config.max_budget_usd, config.checkpoint_interval) == (1e-4, 100.0, 10)
    assert (config.eval_interval, config.eval_samples, config.max_concurrent_rollouts) == (10, 8, 8)
    assert (config.max_steps, config.rollout_timeout_seconds, config.gamma) == (20, 300.0, 0.99)
    assert (config.credit, config.advantage_filter, config.shaping.rule) == ("reward_to_go", "none", "strict")
    assert config.adv_eps == 0.1


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("n_iterations", 0, "n_iterations must be between 1 and 10,000; got 0."),
        ("n_iterations", 10_001, "n_iterations must be between 1 and 10,000; got 10001."),
        ("n_iterations", "many", 'n_iterations must be a whole number; got "many".'),
        ("n_iterations", 1.5, "n_iterations must be a whole number; got 1.5."),
        ("n_iterations", None, "n_iterations must be a whole number; got null."),
        ("n_iterations", True, "n_iterations must not be true or false."),
        ("batch_size", 129, "batch_size must be between 1 and 128; got 129."),
        ("n_trajectories_per_query", 33, "n_trajectories_per_query must be between 1 and 32; got 33."),
        ("learning_rate", 0, "learning_rate must be greater than 0 and at most 0.1; got 0."),
        ("learning_rate", 0.2, "learning_rate must be greater than 0 and at most 0.1; got 0.2."),
        ("learning_rate", float("nan"), "learning_rate must be a number; got NaN."),
        ("max_budget_usd", 0, "max_budget_usd must be greater than 0 and at most 1,000,000,000; got 0."),
        ("max_budget_usd", float("inf"), "max_budget_usd must be a number; got Infinity."),
        ("checkpoint_interval", 0, "checkpoint_interval must be between 1 and 10,000; got 0."),
        ("loss_type", "ppo", 'loss_type must be one of dapo, grpo, bnpo, dr_grpo, cispo, reinforce; got "ppo".'),
        ("std_ddof", 2, "std_ddof must be one of 0, 1; got 2."),
        ("n_iterations", {3}, "n_iterations must be a whole number; got {3}."),
        ("epsilon", 1, "epsilon must be greater than 0 and less than 1; got 1."),
        ("delta", 1, "delta must be greater than 1 and at most 100; got 1."),
        ("dynamic_sampling", "perhaps", 'dynamic_sampling must be true or false; got "perhaps".'),
        ("reward", "", 'reward must be text of 1 to 100 characters; got "".'),
        ("shaping", 3, "shaping must be an object; got 3."),
    ],
)
def test_each_mistake_has_its_own_message(field: str, value: Any, message: str) -> None:
    assert refused({field: value}) == {field: message}


def test_every_mistake_is_reported_at_once() -> None:
    result = refused({"n_iterations": 0, "batch_size": 0, "shaping": {"tool": 5}, "nonsense": 1})
    assert set(result) == {"n_iterations", "batch_size", "shaping.tool", "nonsense"}
    assert result["shaping.tool"] == "shaping.tool must be between -1 and 1; got 5."


def test_unknown_keys_are_refused_with_the_nearest_known_one() -> None:
    assert refused({"n_iteration": 5})["n_iteration"] == 'Unknown key "n_iteration" (did you mean n_iterations?).'
    assert refused({"zzz": 5})["zzz"] == 'Unknown key "zzz".'
    assert "did you mean bits" in refused({"features": {"bit": 5}})["features.bit"]
    assert refused({"preset": "best"})["preset"].startswith('There is no preset named "best". Known: recommended,')


def test_long_values_are_cut_in_messages() -> None:
    assert len(refused({"loss_type": "x" * 10_000})["loss_type"]) < 200


def test_grpo_needs_two_siblings_unless_a_value_function_is_the_baseline() -> None:
    assert "at least 2 for GRPO" in refused({"n_trajectories_per_query": 1})["n_trajectories_per_query"]
    assert "at least 2" in refused({"n_trajectories_per_query": 1, "baseline": "value"})["n_trajectories_per_query"]
    for alone in ({"credit": "value"}, {"baseline": "value", "credit": "uniform"}):
        config, _ = parse_config({"n_trajectories_per_query": 1, **alone})
        assert config.n_trajectories_per_query == 1


def test_cispo_refuses_a_cap_below_one() -> None:
    assert "cap of the ratio" in refused({"loss_type": "cispo"})["epsilon_high"]


def test_text_from_forms_is_read_as_numbers() -> None:
    config, _ = parse_config({"n_iterations": "50", "learning_rate": "0.02"})
    assert (config.n_iterations, config.learning_rate) == (50, 0.02)


def test_missing_values_come_from_the_preset() -> None:
    recommended, warnings = parse_config(None)
    assert recommended == preset_config("recommended", "action")
    assert warnings == []
    config, _ = parse_config({"shaping": {"step": -0.02}})
    assert config.shaping.step == -0.02
    assert config.shaping.verify == recommended.shaping.verify
    spec, warnings = parse_config({"preset": "flow_spec", "n_iterations": 7})
    assert (spec.advantage_filter, spec.credit, spec.loss_type) == ("positive", "discounted", "reinforce")
    assert (spec.shaping.rule, spec.std_ddof, spec.n_iterations) == ("naive", 0, 7)
    assert len(warnings) == 3
    assert spec.exploration == GRPOConfig().exploration  # to the letter: nothing of ours is added


class Plain(ActionLearner):
    name = "plain"


def test_a_learner_without_recommendations_of_its_own_gets_the_documented_defaults() -> None:
    assert preset_values("recommended", Plain()) == {"preset": "recommended"}
    assert preset_config("recommended", "action").learning_rate != GRPOConfig().learning_rate


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("kind", ["action", "llm", "http"])
def test_every_preset_is_a_valid_configuration_that_says_when_to_choose_that_preset(name: str, kind: str) -> None:
    if PRESETS[name].fits == {"weights"}:
        if kind != "action":
            with pytest.raises(ConfigError, match=r"agent learns lessons|learner weights"):
                parse_config({"preset": name}, runtime=kind)
            assert parse_config({"preset": name, "learner": "weights"}, runtime=kind)[0].preset == name
        return
    if kind == "action" and PRESETS[name].fits == {"context"}:
        with pytest.raises(ConfigError, match=f"algorithm {name} puts its lessons"):
            parse_config({"preset": name}, runtime=kind)
        return
    config, _ = parse_config({"preset": name}, runtime=kind)
    assert config == preset_config(name, kind)
    assert config.preset == name
    assert PRESETS[name].when.startswith("Take this")
    assert PRESETS[name].when.endswith(".")


@pytest.mark.parametrize("given", [{}, {"algorithm": "tfgrpo"}, {"credit": "value"}])
def test_a_language_model_learns_from_groups_of_two_at_least(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="n_trajectories_per_query must be at least 2: lessons are learned by"):
        parse_config({"n_trajectories_per_query": 1, **given}, runtime="llm")


def test_an_unknown_preset_names_the_known_ones() -> None:
    with pytest.raises(LookupError, match="recommended, flow_spec"):
        preset_config("nope")


def test_a_stored_configuration_comes_back_equal() -> None:
    for name in PRESETS:
        config = preset_config(name)
        assert GRPOConfig.model_validate(config.as_dict()) == config
        assert GRPOConfig.model_validate_json(config.model_dump_json()) == config


def test_config_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        preset_config().seed = 5  # type: ignore[misc]


def test_every_field_has_a_description() -> None:
    def fields(model: type[BaseModel]) -> list[tuple[str, str | None, str | None]]:
        found = []
        for name, info in model.model_fields.items():
            found.append((name, info.title, info.description))
            if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
                found += fields(info.annotation)
        return found

    for name, title, description in fields(GRPOConfig):
        assert title, name
        assert description, name
        assert description.endswith("."), name


def test_the_shaped_reward_knows_every_shaping_option() -> None:
    assert set(GRPOConfig().shaping.model_dump()) <= set(rewards.get("shaped").option_help)


def test_warnings_name_what_is_allowed_but_risky() -> None:
    _, warnings = parse_config({"shaping": {"rule": "naive"}, "advantage_filter": "positive", "adv_eps": 0})
    assert [w.split()[0] for w in warnings] == ["Naive", "Learning", "With"]
    _, warnings = parse_config({"loss_type": "reinforce", "num_iterations": 2})
    assert "off-policy" in warnings[0]


class TestQueries:
    def test_they_are_trimmed_and_otherwise_kept(self) -> None:
        rows = [{"query": "  What is 2 + 2? ", "expected_outcome": {"answer": "4"}, "metadata": {"topic": "sums"}}]
        assert parse_queries(rows) == [{**rows[0], "query": "What is 2 + 2?"}]

    @pytest.mark.parametrize(
        ("row", "message"),
        [
            ({"query": "   "}, 'Row 2: "query" is empty.'),
            ({"metadata": {}}, 'Row 2: "query" is missing.'),
            ({"query": 5}, 'Row 2: "query" must be text; got 5.'),
            ("text", 'Row 2: must be an object with a "query"; got "text".'),
            ({"query": "a", "expected_outcome": "4"}, 'Row 2: "expected_outcome" must be an object; got "4".'),
            ({"query": "a", "metadata": [1]}, 'Row 2: "metadata" must be an object; got [1].'),
            (
                {"query": "a", "expected": {}},
                'Row 2: unknown key "expected" (did you mean expected_outcome?). Known: query, expected_outcome, '
                "metadata.",
            ),
        ],
    )
    def test_a_faulty_row_is_named(self, row: Any, message: str) -> None:
        with pytest.raises(ConfigError) as caught:
            parse_queries([{"query": "fine"}, row])
        assert caught.value.errors == [FieldError("training_data.2", message)]

    def test_none_and_too_many_are_refused_and_the_limit_itself_is_not(self) -> None:
        with pytest.raises(ConfigError, match="At least one query"):
            parse_queries([])
        assert len(parse_queries({"query": f"q{i}"} for i in range(10_000))) == 10_000
        with pytest.raises(ConfigError, match="At most 10,000"):
            parse_queries({"query": f"q{i}"} for i in range(10_001))

    def test_refusal_does_not_list_ten_thousand_mistakes(self) -> None:
        with pytest.raises(ConfigError) as caught:
            parse_queries([{}] * 10_000)
        assert len(caught.value.errors) == 20

    def test_few_or_repeated_queries_are_accepted_with_a_warning(self) -> None:
        assert query_warnings([f"q{i}" for i in range(100)]) == []
        assert query_warnings([f"q{i}" for i in range(99)])[0].startswith("Only 99 queries")
        assert "2 queries repeat" in query_warnings([f"q{i}" for i in range(100)] + ["Q1", " q2 "])[0]


def test_a_learned_baseline_is_refused_for_an_agent_that_learns_a_context() -> None:
    with pytest.raises(ConfigError, match="Take group_mean or loo"):
        parse_config({"baseline": "value"}, runtime="llm")
    assert parse_config({"baseline": "value"})[0].baseline == "value"
