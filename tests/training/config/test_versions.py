"""Configurations and checkpoints of earlier and later releases."""

from __future__ import annotations

import pytest

from training.config.versions import VERSION, NewerConfig, as_stored, read
from training.policies.archive import CorruptState
from training.schema import GRPOConfig
from training.trainer.versions import FORMAT, upgraded


def test_a_stored_configuration_carries_its_version_and_reads_as_itself() -> None:
    config = GRPOConfig(n_iterations=7, seed=3)
    assert as_stored(config)["version"] == VERSION
    assert read(as_stored(config)) == config


def test_a_later_setting_has_the_value_of_the_time_before_that_setting() -> None:
    old = GRPOConfig().as_dict()
    for name in ("algorithm", "context", "exploration", "reward_options"):
        del old[name]
    assert read(old).exploration.failure_memory == 0.0
    assert read(old).algorithm == "grpo"


def test_a_search_of_an_earlier_release_goes_on_epoch_by_epoch() -> None:
    context = {name: value for name, value in GRPOConfig().context.model_dump().items() if name != "search_every"}
    old = GRPOConfig(n_iterations=30).as_dict() | {"version": 3, "context": context}
    assert read(old | {"algorithm": "tfgrpo"}).context.search_every == 30
    assert read(old) == GRPOConfig(n_iterations=30)


def test_a_configuration_of_a_newer_release_is_refused_with_what_to_do() -> None:
    with pytest.raises(NewerConfig, match="Install the newer release"):
        read({"version": VERSION + 1})


def test_a_checkpoint_of_a_newer_release_is_refused_with_what_to_do() -> None:
    with pytest.raises(CorruptState, match="Install the newer release"):
        upgraded({"format": FORMAT + 1})


def test_words_that_were_kept_without_counts_are_equally_telling() -> None:
    state = upgraded({"policy/vocabulary": ["how", "many"]})
    assert (state["policy/vocabulary"], state["policy/documents"]) == ({"how": 1, "many": 1}, 1)
