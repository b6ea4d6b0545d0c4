"""The ``workbench`` environment: tasks made from one integer each, judged by the verifier of their family."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from experiences.rollouts.environments.answers import answer_in
from experiences.rollouts.environments.base import StepOutcome, environments, result
from experiences.rollouts.environments.scorers import UNFINISHED
from experiences.rollouts.environments.workbench import analysis, coding, research, tool_use
from experiences.rollouts.environments.workbench.base import FAMILIES, WorkTask
from experiences.rollouts.options import Option, help_of, read_options
from experiences.rollouts.thoughts import thoughts_ran_out
from experiences.rollouts.tools.base import AgentTool
from experiences.rollouts.types import ActionSpec, Outcome, Scenario

WRITTEN: Final = (coding, analysis, research, tool_use)  # their import registers the families
NOUN: Final = "environment workbench"
# Which split a question belongs to is a property of its text, as for reasoning_gym: no text of one is in another.
SHARES: Final[Mapping[str, range]] = {"train": range(5), "selection": range(5, 7), "held_out": range(7, 10)}
REGION: Final = 2**29
MOST_TRIES: Final = 200  # in a row without a new text


def task_of(family: str, number: int) -> WorkTask:
    """The task that this number makes; its tools have a state of their own."""
    return FAMILIES.found[family].make(random.Random(f"{family}/{number}"))  # noqa: S311 (no secret)


@dataclass(frozen=True)
class WorkbenchEnvironment:
    """Tasks of ``families`` in turn, so that families are balanced. Offers no actions: it is talked to."""

    families: tuple[str, ...]
    name: str = "workbench"
    actions: tuple[ActionSpec, ...] = ()
    lines: tuple[str, ...] = ()

    def scenarios(self, split: str, n: int, seed: int) -> Sequence[Scenario]:
        """``n`` tasks of a split, with indices from 0; the same for every n as far as they go.

        Raises:
            ValueError: the split is unknown, n is below 1, or the families have fewer different questions.
        """
        if split not in SHARES:
            raise ValueError(f"There is no split {split!r}. Known: {', '.join(SHARES)}.")
        if n < 1:
            raise ValueError(f"The number of scenarios must be at least 1; got {n}.")
        sources = [self._of_family(family, split, seed) for family in self.families]
        found: list[Scenario] = []
        while len(found) < n:
            family, number, question = next(sources[len(found) % len(sources)])
            kind = FAMILIES.found[family]
            about = {"task_type": family, "category": kind.category, "split": split, "tools": kind.uses_tools}
            found.append(Scenario(len(found), question, {"family": family, "item": number}, about))
        return found

    def start(self, scenario: Scenario, rng: np.random.Generator) -> WorkEpisode:
        """One attempt, on a state of its own. ``rng`` is not used: a task is the same in each attempt."""
        task = task_of(str(scenario.expected["family"]), int(scenario.expected["item"]))
        return EquippedWork(scenario, task) if task.tools else WorkEpisode(scenario, task)

    def _of_family(self, family: str, split: str, seed: int) -> Iterator[tuple[str, int, str]]:
        start, seen, fruitless = zlib.crc32(f"{seed}/{family}/{split}".encode()) % REGION, set[str](), 0
        for offset in range(REGION):
            number = (start + offset) % REGION
            question = task_of(family, number).question
            fruitless += 1
            if zlib.crc32(question.encode()) % 10 in SHARES[split] and question not in seen:
                seen.add(question)
                fruitless = 0
                yield family, number, question
            if fruitless > MOST_TRIES:
                break
        raise ValueError(f"{family} has only {len(seen)} different questions for {split!r}.")


class WorkEpisode:
    """One attempt: what is said without calling a tool is the answer."""

    one_answer = True

    def __init__(self, scenario: Scenario, task: WorkTask) -> None:
        self._scenario, self._task = scenario, task
        self._answer: str | None = None

    async def opening(self) -> str:
        return self._task.question

    async def say(self, text: str) -> StepOutcome:
        action = {"type": "answer", "tool": "", "parameters": {"text": text}}
        if thoughts_ran_out(text):
            return StepOutcome(action, result(False, error=UNFINISHED), done=True)
        self._answer = answer_in(text)
        return StepOutcome(action, result(True, self._answer), done=True)

    def outcome(self) -> Outcome:
        evidence = {"scorer": f"workbench/{self._scenario.expected['family']}", "expected": self._task.expected}
        evidence |= {"task_type": self._scenario.metadata["task_type"]}
        if self._answer is None:
            return Outcome(0.0, False, {**evidence, "answered": False})
        right, why = self._task.check(self._answer)
        return Outcome(float(right), right, {**evidence, "answer": self._answer, **({"why": why} if why else {})})

    async def close(self) -> None:
        return None


class EquippedWork(WorkEpisode):
    """With tools that work on the task's own state, in the place of the agent's."""

    @property
    def tools(self) -> Sequence[AgentTool]:
        return self._task.tools


OPTIONS: Final[Mapping[str, Option]] = {
    "families": Option("Families of tasks to draw from, in turn; all by default.", tuple(FAMILIES.found)),
}


class WorkbenchFactory:
    """``speaks_text_only``: only a language model can play here. ``one_answer``: an agent over HTTP can, where a task
    needs no tools. ``brings_tools``: its episodes have tools of their own."""

    title: ClassVar[str] = "Workbench"
    speaks_text_only: ClassVar[bool] = True
    one_answer: ClassVar[bool] = True
    brings_tools: ClassVar[bool] = True
    description: ClassVar[str] = "Generated tasks of coding, analysis, research and tool use; for language models."
    options: ClassVar[Mapping[str, Option]] = OPTIONS
    option_help: ClassVar[Mapping[str, str]] = help_of(OPTIONS)

    def __call__(self, options: Mapping[str, Any]) -> WorkbenchEnvironment:
        chosen = read_options(NOUN, options, OPTIONS)["families"]
        if isinstance(chosen, str) or not isinstance(chosen, Sequence) or not chosen:
            raise ValueError(f"{NOUN}: families must be a list of families; got {chosen!r}.")
        families = tuple(dict.fromkeys(map(str, chosen)))
        if unknown := [family for family in families if family not in FAMILIES.found]:
            raise ValueError(f"{NOUN} has no family {unknown[0]!r}. Known: {', '.join(FAMILIES.found)}.")
        return WorkbenchEnvironment(families)


environments.register("workbench")(WorkbenchFactory())
