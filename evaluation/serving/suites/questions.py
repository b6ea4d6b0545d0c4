"""The queries of a suite's parts: environments with their scenarios."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from evaluation.serving.safety import safety_plugins
from evaluation.serving.safety.environment import SafetyEnvironment
from evaluation.serving.suite_spec import SuitePart, SuiteSpec
from experiences.agents.selectors import dataset_rows
from experiences.models import AgentRuntime, Dataset
from experiences.rollouts.environments import environments
from experiences.rollouts.environments.base import Environment
from experiences.rollouts.environments.dataset import dataset_environment
from experiences.rollouts.types import Scenario

HELD_OUT: Final = "held_out"


@dataclass(frozen=True)
class Player:
    """The agent to be asked, of this ``runtime``, with this ``system`` prompt, or of these ``actions``; and the model
    that judges what rules can't decide, "" for none."""

    runtime: str = AgentRuntime.LLM
    system: str = ""
    actions: tuple[str, ...] = ()
    judge_model: str = ""


@dataclass(frozen=True)
class AskedPart:
    """A part (counted from 0) with what it asks of a player; no scenarios where the player can't be asked it."""

    number: int
    part: SuitePart
    environment: Environment
    scenarios: Sequence[Scenario]


def questions_of(spec: SuiteSpec, organization_id: UUID, player: Player) -> list[AskedPart]:
    """Every part as this player can be asked it.

    Raises:
        UnknownName, ValueError: there is no such environment, dataset or plugin, it refuses its options, or it has too
            few items.
    """
    found = []
    for number, part in enumerate(spec.parts):
        environment, scenarios = _of(part, organization_id, spec.seed, player)
        asked = [scenario for scenario in scenarios if _can_be_asked(part, environment, scenario, player)]
        found.append(AskedPart(number, part, environment, asked))
    return found


def _of(part: SuitePart, organization_id: UUID, seed: int, player: Player) -> tuple[Environment, Sequence[Scenario]]:
    if part.probes:
        plugin = safety_plugins.get(part.probes)
        model = player.judge_model
        probes = SafetyEnvironment(plugin, model, player.runtime == AgentRuntime.LLM, player.system)
        return probes, probes.scenarios(HELD_OUT, part.n or len(plugin.probes), seed)
    if part.dataset:
        rows = dataset_rows(dataset_of_part(part, organization_id))
        own = dataset_environment(rows, part.options)
        return own, own.scenarios("all", part.n or len(rows), seed)
    environment = _environment(part.environment, json.dumps(part.options, sort_keys=True))
    return environment, environment.scenarios(HELD_OUT, part.n or 1, seed)


@lru_cache(maxsize=16)
def _environment(name: str, options: str) -> Environment:
    """One for all slices and runs of a process: it holds the caches of its items."""
    return environments.get(name)(json.loads(options))


def dataset_of_part(part: SuitePart, organization_id: UUID) -> Dataset:
    """Raises:
    ValueError: the organisation has no such dataset."""
    try:
        return Dataset.objects.get(pk=UUID(part.dataset), organization_id=organization_id)
    except (ValueError, Dataset.DoesNotExist):
        raise ValueError(f"There is no dataset {part.dataset[:60]!r} in this organisation.") from None


def _can_be_asked(part: SuitePart, environment: Environment, scenario: Scenario, player: Player) -> bool:
    if player.runtime == AgentRuntime.ACTION:
        return bool(environment.actions) and tuple(action.name for action in environment.actions) == player.actions
    if player.runtime == AgentRuntime.HTTP:  # it has its own tools, and answers once
        return not scenario.metadata.get("tools") and (not part.environment or _answers_once(part.environment))
    return True


def _answers_once(name: str) -> bool:
    factory: Any = environments.get(name)
    return not getattr(factory, "speaks_text_only", False) or bool(getattr(factory, "one_answer", False))
