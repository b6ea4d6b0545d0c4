"""An environment of questions that are answered in text, as one function: its queries and a score of an answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from experiences.rollouts.environments.answers import answer_in
from experiences.rollouts.environments.base import EnvironmentFactory, StepOutcome, environments, result, split_of
from experiences.rollouts.environments.scorers import UNFINISHED
from experiences.rollouts.options import Option, described, help_of, read_options
from experiences.rollouts.thoughts import thoughts_ran_out
from experiences.rollouts.types import ActionSpec, Outcome, Scenario

QUERIES: Final = (10, 1_000_000)
MAX_TEXT: Final = 20_000


@dataclass(frozen=True)
class TextTasks:
    """``queries``: what counts as success (a JSON value) by the text of the query, so that no two splits share a text.
    ``score(answer, expected)`` is from 0 to 1, which is a success; an exception of it scores 0. ``instructions`` come
    before each query.

    Raises:
        ValueError: there are too few or too many queries, or a text is empty or too long.
    """

    queries: Mapping[str, Any]
    score: Callable[[str, Any], float]
    instructions: str = ""

    def __post_init__(self) -> None:
        if not QUERIES[0] <= len(self.queries) <= QUERIES[1]:
            raise ValueError(
                f"There are {len(self.queries):,} queries; from {QUERIES[0]} to {QUERIES[1]:,} are possible."
            )
        if any(not text.strip() or len(text) + len(self.instructions) > MAX_TEXT for text in self.queries):
            raise ValueError(f"A query has from 1 to {MAX_TEXT:,} characters, with the instructions.")


@dataclass
class AnswerEpisode:
    """One attempt: the first message is the answer, or what it has behind its last "Answer:"."""

    tasks: TextTasks
    scenario: Scenario
    answer: str | None = None
    one_answer: bool = True

    async def opening(self) -> str:
        return f"{self.tasks.instructions}\n\n{self.scenario.query}".strip()

    async def say(self, text: str) -> StepOutcome:
        action = {"type": "answer", "tool": "", "parameters": {"text": text}}
        if thoughts_ran_out(text):
            return StepOutcome(action, result(False, error=UNFINISHED), done=True)
        self.answer = answer_in(text)
        return StepOutcome(action, result(True, self.answer), done=True)

    def outcome(self) -> Outcome:
        if self.answer is None:
            return Outcome(0.0, False, {"answered": False})
        evidence = {"answer": self.answer, "expected": self.scenario.expected["answer"]}
        try:
            score = float(self.tasks.score(self.answer, evidence["expected"]))
            if not (math.isfinite(score) and 0 <= score <= 1):
                raise ValueError(f"the score {score!r} is not in [0, 1]")
        except Exception as error:  # a bug of the score costs an answer its score, and not the job
            return Outcome(0.0, False, evidence | {"scorer_error": f"{type(error).__name__}: {error}"})
        return Outcome(score, score == 1, evidence)

    async def close(self) -> None:
        return None


@dataclass(frozen=True)
class TextEnvironment:
    name: str
    tasks: TextTasks
    actions: tuple[ActionSpec, ...] = ()
    lines: tuple[str, ...] = ()

    def scenarios(self, split: str, n: int, seed: int) -> Sequence[Scenario]:
        """``n`` queries of a split. Raises ValueError as ``split_of`` does."""
        texts = list(self.tasks.queries)
        chosen = [texts[place] for place in split_of(len(texts), split, n, seed)]
        return [
            Scenario(i, text, {"answer": self.tasks.queries[text]}, {"split": split}) for i, text in enumerate(chosen)
        ]

    def start(self, scenario: Scenario, rng: np.random.Generator) -> AnswerEpisode:
        return AnswerEpisode(self.tasks, scenario)


@dataclass(frozen=True)
class TextFactory:
    name: str
    title: str
    description: str
    options: Mapping[str, Option]
    tasks_of: Callable[..., TextTasks]
    speaks_text_only: ClassVar[bool] = True
    one_answer: ClassVar[bool] = True

    @property
    def option_help(self) -> Mapping[str, str]:
        return help_of(self.options)

    def __call__(self, options: Mapping[str, Any]) -> TextEnvironment:
        values = read_options(f"environment {self.name}", options, self.options)
        return TextEnvironment(self.name, self.tasks_of(**values))


def text_environment(title: str, **options: Option) -> Callable[[Callable[..., TextTasks]], EnvironmentFactory]:
    """Registers the decorated function of the values of options as an environment, by its own name and with its
    docstring as the description. Forms show the title."""

    def register(tasks_of: Callable[..., TextTasks]) -> EnvironmentFactory:
        name = tasks_of.__name__
        words = described(f"environment {name}", tasks_of, options)
        return environments.register(name)(TextFactory(name, title, words, options, tasks_of))

    return register
