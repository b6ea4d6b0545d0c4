"""Training without weights: the settings, limits and guard rails of its technical specification."""

from __future__ import annotations

from typing import Any

import pytest

from agentcore_site.lib.errors import Invalid
from experiences.learning.lessons.guards import MAX_WORDS
from experiences.learning.lessons.states import summary_fault
from experiences.models import Agent
from training.config.validation import ConfigError, parse_config
from training.services.launch_defaults import groups_fault
from training.services.pipeline import PipelineOptions, pipeline_config, pipeline_options

# Of its pipeline stub and its configuration keys.
OVERRIDES = {"TFGRPO_EPOCHS": 3, "TFGRPO_SAMPLE_SIZE": 100, "TFGRPO_TRAIN_TEMP": 0.7, "TFGRPO_EVAL_TEMP": 0.3}
GROUP_SIZE = 2


def test_its_defaults_are_those_of_the_pipeline(settings: Any) -> None:
    assert {name: getattr(settings, name) for name in OVERRIDES} == OVERRIDES
    assert settings.TFGRPO_GROUP_SIZE == GROUP_SIZE and MAX_WORDS == 32
    assert pipeline_options() == PipelineOptions(3, 2, 100, 0.7, 0.3)


def test_its_overrides_reach_the_job(settings: Any) -> None:
    for name, value in (OVERRIDES | {"TFGRPO_GROUP_SIZE": 4, "TFGRPO_EVAL_TEMP": 0.2}).items():
        setattr(settings, name, value)
    config = pipeline_config(pipeline_options(), [f"query {n}" for n in range(100)])
    assert (config["algorithm"], config["n_trajectories_per_query"]) == ("tfgrpo", 4)
    assert (config["temperature"], config["eval_temperature"], config["context"]["epochs"]) == (0.7, 0.2, 3)


def test_groups_below_two_are_refused() -> None:
    with pytest.raises(Invalid, match="at least 2"):
        pipeline_options(group_size=1)
    with pytest.raises(ConfigError):
        parse_config({"preset": "tfgrpo", "algorithm": "tfgrpo", "n_trajectories_per_query": 1}, runtime="llm")


def test_summaries_above_32_words_are_refused() -> None:
    assert summary_fault("word " * 32) == ""
    assert "32 are allowed" in summary_fault("word " * 33)


def test_the_feature_is_off_for_an_agent_until_a_person_switches_the_feature_on(settings: Any) -> None:
    assert settings.FEATURE_TFGRPO_GROUP and "off for this agent" in groups_fault(Agent())
    settings.FEATURE_TFGRPO_GROUP = False
    assert "FEATURE_TFGRPO_GROUP=0" in groups_fault(Agent(grouped_execution=True))
