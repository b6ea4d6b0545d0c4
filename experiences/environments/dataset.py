"""The dataset environment: a user's own queries, each with what counts as success."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from experiences.environments.base import environments
from experiences.environments.faults import FaultRates
from experiences.environments.scorers import SCORERS, Check, check_for
from experiences.environments.tool_episode import ToolEpisode, ToolWorld
from experiences.options import checked_options, choice_option, flag_option, number_option
from experiences.tools import toolbox
from experiences.types import ActionSpec, Outcome, Scenario

NOUN = "environment dataset"
MAX_REMEMBERED_CHECKS = 20_000


@dataclass(frozen=True)
class DatasetEnvironment:
    """Rows as scenarios, in their order, with the row's place as index. Who is trained on what is decided by the
    caller (by content: a row's place says nothing), so the only split is "all"."""

    world: ToolWorld
    rows: tuple[Scenario, ...]
    name: str = "dataset"
    lines: tuple[str, ...] = ()

    @property
    def actions(self) -> tuple[ActionSpec, ...]:
        return self.world.actions

    def scenarios(self, split: str, n: int, seed: int) -> Sequence[Scenario]:
        """The first ``n`` rows; ``seed`` changes nothing.

        Raises:
            ValueError: the split is not "all", or there are fewer rows.
        """
        if split != "all":
            raise ValueError(f"A dataset is not split by its environment: ask for 'all'; got {split!r}.")
        if not 1 <= n <= len(self.rows):
            raise ValueError(f"The dataset has {len(self.rows)} rows; {n} were asked for.")
        return self.rows[:n]

    def start(self, scenario: Scenario, rng: np.random.Generator) -> ToolEpisode:
        return self.world.start(scenario, rng)


class RowScorer:
    """Judges answers by each row's own check. Scenarios may be numbered anew (``reindexed``): the check hangs on
    what a scenario expects and not on its index."""

    def __init__(self, scorer: str, case_sensitive: bool) -> None:
        self._scorer = scorer
        self._case_sensitive = case_sensitive
        self._checks: dict[int, tuple[Mapping[str, Any], Check]] = {}

    def __call__(self, answer: str, scenario: Scenario) -> Outcome:
        return self.check(scenario.expected)(answer)

    def check(self, expected: Mapping[str, Any]) -> Check:
        """The check of an expectation, built once. Raises ValueError as ``check_for`` does."""
        known = self._checks.get(id(expected))
        if known is None or known[0] is not expected:  # an id may be another object's by now
            if len(self._checks) >= MAX_REMEMBERED_CHECKS:
                self._checks.clear()
            made = check_for(expected, self._scorer, case_sensitive=self._case_sensitive)
            known = self._checks[id(expected)] = (expected, made)
        return known[1]


def dataset_environment(rows: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> DatasetEnvironment:
    """An environment of rows {"query", "expected_outcome", "metadata"}; other keys of a row are ignored.

    Raises:
        ValueError: an option is wrong, or a row has no query or nothing to check an answer against; the message
            has the row's number, counted from 1.
    """
    checked_options(NOUN, options, OPTION_HELP)
    box = toolbox(
        tuple(options.get("tools", ())), traps=choice_option(NOUN, options, "traps", ("none", "three", "all"))
    )
    rates = FaultRates(
        timeout=number_option(NOUN, options, "timeout_rate", 0.0, 0, 0.5),
        corrupted=number_option(NOUN, options, "corruption_rate", 0.0, 0, 0.5),
    )
    scorer = RowScorer(
        choice_option(NOUN, options, "scorer", ("auto", *SCORERS)), flag_option(NOUN, options, "case_sensitive", False)
    )
    scenarios = tuple(_scenario(index, row, scorer) for index, row in enumerate(rows))
    return DatasetEnvironment(ToolWorld(box, scorer, rates), scenarios)


def _scenario(index: int, row: Mapping[str, Any], scorer: RowScorer) -> Scenario:
    query, expected = str(row.get("query") or "").strip(), row.get("expected_outcome")
    if not query:
        raise ValueError(f"Row {index + 1} has no query.")
    if not isinstance(expected, Mapping):
        expected = {} if expected is None else {"answer": expected}
    try:
        scorer.check(expected)
    except ValueError as error:
        raise ValueError(f"Row {index + 1}: {error}") from None
    return Scenario(index, query, expected, dict(row.get("metadata") or {}))


OPTION_HELP: Mapping[str, str] = {
    "scorer": "How answers are judged: auto (default: by each row's keys), " + ", ".join(SCORERS) + ".",
    "case_sensitive": "Whether exact, contains and regex tell capital letters apart; false by default.",
    "tools": "Names of the tools that the agent gets; all built-in ones by default.",
    "traps": "How many built-in tools answer almost any text: none (default), three or all (five).",
    "timeout_rate": "The share of tool calls that time out; 0 by default.",
    "corruption_rate": "The share of tool calls that return a corrupted result; 0 by default.",
}


class DatasetFactory:
    """Takes the rows as the option "rows"; without it the environment is empty, which checks the other options."""

    description: ClassVar[str] = "Your own queries, each with what counts as success."
    option_help: ClassVar[Mapping[str, str]] = OPTION_HELP

    def __call__(self, options: Mapping[str, Any]) -> DatasetEnvironment:
        rows = options.get("rows", ())
        return dataset_environment(rows, {name: value for name, value in options.items() if name != "rows"})


environments.register("dataset")(DatasetFactory())
