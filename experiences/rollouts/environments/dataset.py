"""The dataset environment: a user's own queries, each with what counts as success."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np

from experiences.rollouts.environments.base import Environment, environments
from experiences.rollouts.environments.fault_injection import FaultRates
from experiences.rollouts.environments.scorers import SCORERS, Check, Rubric, check_for, rubric_for, scorer_of
from experiences.rollouts.environments.tool_episode import ToolEpisode, ToolWorld
from experiences.rollouts.options import Option, help_of, read_options
from experiences.rollouts.tools import toolbox
from experiences.rollouts.types import ActionSpec, Outcome, Scenario

NOUN = "environment dataset"
MAX_REMEMBERED_CHECKS = 20_000
UNASKED = Rubric("")  # how judges are asked where nothing else is said


@dataclass(frozen=True)
class DatasetEnvironment:
    """Rows as scenarios, in their order, with the row's place as index. Who is trained on what is decided by the
    caller (by content: a row's place says nothing), so the only split is "all". ``judged``: a language model has to
    judge the answers to some rows."""

    world: ToolWorld
    rows: tuple[Scenario, ...]
    judged: bool = False
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
    """Judges answers by each row's own check. Scenarios may be renumbered (``reindexed``): the check depends on a
    scenario's expectation and not on its index."""

    def __init__(self, scorer: str, case_sensitive: bool, judging: Rubric = UNASKED) -> None:
        self._scorer = scorer
        self._judging = judging  # how judges are asked; text and reference are the row's
        self._case_sensitive = case_sensitive
        self._checks: dict[int, tuple[Mapping[str, Any], Check]] = {}

    def __call__(self, answer: str, scenario: Scenario) -> Outcome:
        return self.check(scenario.expected, scenario.query)(answer)

    def rubric(self, scenario: Scenario) -> Rubric | None:
        """The rubric of a scenario for a judge; None for a row that is checked without one."""
        found = rubric_for(scenario.expected, self._scorer)
        return None if found is None else replace(self._judging, text=found.text, reference=found.reference)

    def compares_formulas(self, scenario: Scenario) -> bool:
        """Whether the check may wait for the process that compares formulas."""
        return (scorer_of(scenario.expected) if self._scorer == "auto" else self._scorer) == "math"

    def check(self, expected: Mapping[str, Any], query: str) -> Check:
        """The check of an expectation of a query, built once. Raises ValueError as ``check_for`` does."""
        known = self._checks.get(id(expected))
        if known is None or known[0] is not expected:  # an id may be another object's by now
            if len(self._checks) >= MAX_REMEMBERED_CHECKS:
                self._checks.clear()
            made = check_for(expected, self._scorer, case_sensitive=self._case_sensitive, query=query)
            known = self._checks[id(expected)] = (expected, made)
        return known[1]


def dataset_environment(rows: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> DatasetEnvironment:
    """An environment of rows {"query", "expected_outcome", "metadata"}; other keys of a row are ignored.

    Raises:
        ValueError: an option is wrong, or a row has no query or nothing to check an answer against; the message
            has the row's number, counted from 1.
    """
    chosen = read_options(NOUN, options, OPTIONS)
    box = toolbox(tuple(chosen["tools"]), traps=chosen["traps"])
    rates = FaultRates(timeout=chosen["timeout_rate"], corrupted=chosen["corruption_rate"])
    model = chosen["judge_model"]
    if not isinstance(model, str):
        raise ValueError(f"{NOUN}: judge_model must be the name of a model; got {model!r}.")
    rubric = Rubric("", threshold=chosen["judge_threshold"], calls=chosen["judge_calls"], model=model.strip())
    scorer = RowScorer(chosen["scorer"], chosen["case_sensitive"], rubric)
    scenarios = tuple(_scenario(index, row, scorer) for index, row in enumerate(rows))
    judged = any(scorer.rubric(scenario) is not None for scenario in scenarios)
    return DatasetEnvironment(ToolWorld(box, scorer, rates, scorer.rubric, scorer.compares_formulas), scenarios, judged)


def refuse_judged(environment: Environment) -> None:
    """For agents that choose actions: they have no language model that could judge.

    Raises:
        ValueError: the environment needs one; the message says what to do.
    """
    if getattr(environment, "judged", False):
        raise ValueError(
            "Answers to some rows have to be judged by a language model (judge). Train an agent that is a language"
            " model on them, or give each row an answer that can be checked without one."
        )


def _scenario(index: int, row: Mapping[str, Any], scorer: RowScorer) -> Scenario:
    query, expected = str(row.get("query") or "").strip(), row.get("expected_outcome")
    if not query:
        raise ValueError(f"Row {index + 1} has no query.")
    if not isinstance(expected, Mapping):
        expected = {} if expected is None else {"answer": expected}
    try:
        scorer.check(expected, query)
    except ValueError as error:
        raise ValueError(f"Row {index + 1}: {error}") from None
    return Scenario(index, query, expected, dict(row.get("metadata") or {}))


OPTIONS: Final[Mapping[str, Option]] = {
    "scorer": Option(
        "How answers are judged: auto (default: by each row's keys), " + ", ".join(SCORERS) + ".",
        choices=("auto", *SCORERS),
    ),
    "case_sensitive": Option("Whether exact, contains and regex distinguish capital letters; false by default.", False),
    "judge_model": Option(
        "The model that judges rows with a rubric, at the agent's endpoint; the agent's own by default.", ""
    ),
    "judge_calls": Option("How often the judge is asked about an answer; the median counts. 1 by default.", 1, 1, 9),
    "judge_threshold": Option(
        "The judge's score, from 0 to 1, from which an answer is a success; 0.7 by default.", 0.7, 0, 1
    ),
    "tools": Option("Names of the tools that the agent gets; all built-in ones by default.", ()),
    "traps": Option(
        "How many built-in tools answer almost any text: none (default), three or all (five).",
        choices=("none", "three", "all"),
    ),
    "timeout_rate": Option("The share of tool calls that time out; 0 by default.", 0.0, 0, 0.5),
    "corruption_rate": Option("The share of tool calls that return a corrupted result; 0 by default.", 0.0, 0, 0.5),
}


class DatasetFactory:
    """Takes the rows as the option "rows"; without it the environment is empty, which checks the other options."""

    title: ClassVar[str] = "Datasets"
    description: ClassVar[str] = "Your own queries, each with what counts as success."
    options: ClassVar[Mapping[str, Option]] = OPTIONS
    option_help: ClassVar[Mapping[str, str]] = help_of(OPTIONS)

    def __call__(self, options: Mapping[str, Any]) -> DatasetEnvironment:
        rows = options.get("rows", ())
        return dataset_environment(rows, {name: value for name, value in options.items() if name != "rows"})


environments.register("dataset")(DatasetFactory())
