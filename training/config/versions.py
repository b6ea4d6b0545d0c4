"""Configurations as rows hold them: with a version, and upgraded when they are read.

A row that an earlier release wrote means what it meant then: settings that came later get the value that holds what the
release did, never today's default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from agentcore_site.lib.word_erasure import ProgramKeys
from training.schema import GRPOConfig

VERSION: Final = 4
KEY: Final = "version"
# All but the options of a reward, which a plugin may read, are numbers, or from a list of ours.
OPTIONS: Final = "reward_options"
OWN: Final = ProgramKeys.but({KEY, *GRPOConfig.model_fields} - {OPTIONS}, foreign=[OPTIONS])


class NewerConfig(ValueError):
    """The row was written by a release that is newer than this one."""


def as_stored(config: GRPOConfig) -> dict[str, Any]:
    """The configuration as a row stores it."""
    return {KEY: VERSION, **config.as_dict()}


def read(row: Mapping[str, Any]) -> GRPOConfig:
    """The configuration of a row of any release until now.

    Raises:
        NewerConfig: a newer release wrote it.
        pydantic.ValidationError: it is none of ours.
    """
    values = dict(row)
    version = int(values.pop(KEY, 1))
    if version > VERSION:
        raise NewerConfig(
            f"The configuration has version {version}; this release reads up to {VERSION}. Install the newer release."
        )
    for upgrade in UPGRADES[version - 1 :]:
        values = upgrade(values)
    return GRPOConfig.model_validate(values)


def _from_1(values: dict[str, Any]) -> dict[str, Any]:
    """Version 1 had no mark; its first releases had no exploration, no rewards with options and no language models."""
    added: dict[str, Any] = {
        "algorithm": "grpo",
        "context": {},
        "exploration": {"failure_memory": 0.0, "query_sampling": "uniform", "learn_from_failed_groups": True},
        "reward_options": {},
    }
    return added | values


def _from_2(values: dict[str, Any]) -> dict[str, Any]:
    """Until version 2 a tenth of the queries selected, and the gate looked once, at as many samples as the proof."""
    then = {"gate_samples": values.get("eval_samples", 8), "gate_steps": 1, "ship_confidence": 0.8}
    context = then | dict(values.get("context", {}))
    return {"selection_share": 0.1, "selection_least": 1} | values | {"context": context}


def _from_3(values: dict[str, Any]) -> dict[str, Any]:
    """Until version 3 an epoch of training-free GRPO was one step of its search, and all queries got the same
    lessons."""
    context: dict[str, Any] = {"relevance": "none"} | dict(values.get("context", {}))
    if values.get("algorithm") == "tfgrpo":
        context = {"search_every": values.get("n_iterations", 1000)} | context
    return values | {"context": context}


# The one at index n leads from version n + 1 to the next.
UPGRADES: Final[tuple[Callable[[dict[str, Any]], dict[str, Any]], ...]] = (_from_1, _from_2, _from_3)
