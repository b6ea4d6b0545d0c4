"""The tool episode: call tools on a question, verify the result, answer with it.

Three rules decide whether this can be learned at all (measured before this was written):
(a) a call that timed out leaves nothing in the history;
(b) a verify that finds the result inconsistent discards it, together with its history:
    the state is the one before and the retry needs no separate learning;
(c) verify and answer are masked while there is no result, and verify also once it has passed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np

from experiences.rollouts.environments.answers import answer_in
from experiences.rollouts.environments.base import StepOutcome, result
from experiences.rollouts.environments.fault_injection import FaultRates, Faults, corrupted
from experiences.rollouts.environments.scorers import UNFINISHED, Rubric
from experiences.rollouts.thoughts import thoughts_ran_out
from experiences.rollouts.tools import Toolbox
from experiences.rollouts.types import ActionSpec, Observation, Outcome, Scenario

Scorer = Callable[[str, Scenario], Outcome]
"""Judges an answer: (answer, scenario) -> verdict. May raise: that scores 0 and is counted."""

TIMED_OUT = "timeout: the tool did not answer"
VERIFIED = "verify#ok"
TASK_FACTS: Final = ("task_type", "domain", "subordinate_profile")  # texts of a row's metadata that its rollouts carry


class Masks(NamedTuple):
    """The actions that are allowed, by the result that the agent has."""

    nothing: tuple[bool, ...]
    unverified: tuple[bool, ...]
    verified: tuple[bool, ...]


class ToolWorld:
    """Shared parts of the episodes of one environment: tools, actions, masks, fault rates and scorer.

    Action i < len(toolbox) calls tool i; then come ``verify`` and ``answer``. ``scorer_errors`` counts answers on
    which the scorer raised. ``waits_for``: whether the scorer may wait for another process.
    """

    def __init__(
        self,
        toolbox: Toolbox,
        scorer: Scorer,
        rates: FaultRates,
        rubric_of: Callable[[Scenario], Rubric | None] = lambda _: None,
        waits_for: Callable[[Scenario], bool] = lambda _: False,
    ) -> None:
        self.toolbox = toolbox
        self.scorer = scorer
        self.rubric_of = rubric_of
        self.waits_for = waits_for
        self.rates = rates
        self.scorer_errors = 0
        self.names = tuple(tool.name for tool in toolbox)
        self.actions = (
            *(ActionSpec(tool.name, "tool", tool.description) for tool in toolbox),
            ActionSpec("verify", "verify", "Computes the result once more and compares."),
            ActionSpec("answer", "answer", "Ends the episode with the result in hand."),
        )
        every = (True,) * len(toolbox)
        self.masks = Masks((*every, False, False), (*every, True, True), (*every, False, True))

    def start(self, scenario: Scenario, rng: np.random.Generator) -> ToolEpisode:
        """One attempt. The episode keeps ``rng`` for its faults and draws from it before the first step."""
        return ToolEpisode(self, scenario, Faults(self.rates, rng))

    def score(self, answer: str, scenario: Scenario) -> Outcome:
        """The scorer's verdict; an exception of it is a score of 0 with the exception in the evidence."""
        try:
            return self.scorer(answer, scenario)
        except Exception as error:  # some verifiers raise on answers of an unexpected form
            self.scorer_errors += 1
            return Outcome(0.0, False, {"answer": answer, "scorer_error": f"{type(error).__name__}: {error}"})


class ToolEpisode:
    """One attempt at one scenario. The agent sees the question, the last result and what it has tried."""

    __slots__ = (
        "_answer",
        "_chain",
        "_done",
        "_faults",
        "_judge",
        "_last",
        "_query",
        "_scenario",
        "_tags",
        "_verdict",
        "_world",
    )

    def __init__(self, world: ToolWorld, scenario: Scenario, faults: Faults) -> None:
        self._world = world
        self._scenario = scenario
        self._query = scenario.query
        self._faults = faults
        self._last = ""
        self._chain: tuple[int, ...] = ()  # the tools that led to the last result
        self._tags: set[str] = set()
        self._done: tuple[str, ...] = ()  # the same, sorted
        self._answer: str | None = None
        self._judge: Callable[[str], Awaitable[Outcome]] | None = None
        self._verdict: Outcome | None = None

    def observe(self) -> Observation:
        masks = self._world.masks
        if not self._last:
            mask = masks.nothing
        else:
            mask = masks.verified if VERIFIED in self._tags else masks.unverified
        return Observation(self._query, self._last, self._done, mask)

    async def step(self, choice: int) -> StepOutcome:
        """Does action ``choice``.

        Raises:
            IndexError: there is no such action.
        """
        world = self._world
        if not 0 <= choice < len(world.actions):
            raise IndexError(f"there is no action {choice}; there are {len(world.actions)}")
        if choice < len(world.toolbox):
            return self._call(choice)
        if world.actions[choice].kind == "verify":
            return self._verify()
        self._answer = self._last
        action = {"type": "answer", "tool": "", "parameters": {"text": self._last}}
        return StepOutcome(action, result(True, self._last), done=True)

    @property
    def one_answer(self) -> bool:
        return True

    async def opening(self) -> str:
        return self._query

    @property
    def rubric(self) -> Rubric | None:
        """The rubric for a judge; None where the answer is checked without one."""
        return self._world.rubric_of(self._scenario)

    def judged_by(self, judge: Callable[[str], Awaitable[Outcome]]) -> None:
        """From now on answers are judged by ``judge``."""
        self._judge = judge

    async def say(self, text: str) -> StepOutcome:
        """Takes a message as the answer; ``answer_in`` says what of it is scored. Thoughts alone are no answer."""
        action = {"type": "answer", "tool": "", "parameters": {"text": text}}
        if thoughts_ran_out(text):
            return StepOutcome(action, result(False, error=UNFINISHED), done=True)
        self._answer = answer_in(text)
        if self._judge is not None:
            self._verdict = await self._judge(self._answer)
        elif self._world.waits_for(self._scenario):
            self._verdict = await asyncio.to_thread(self._world.score, self._answer, self._scenario)
        return StepOutcome(action, result(True, self._answer), done=True)

    def outcome(self) -> Outcome:
        found, facts = self._scored(), _task_facts(self._scenario.metadata)
        return replace(found, evidence={**found.evidence, **facts}) if facts else found

    def _scored(self) -> Outcome:
        if self._answer is None:
            return Outcome(0.0, False, {"answered": False})
        if self._verdict is not None:
            return self._verdict
        return self._world.score(self._answer, self._scenario)

    async def close(self) -> None:
        return None

    def _call(self, tool: int) -> StepOutcome:
        name = self._world.names[tool]
        action = {"type": "tool", "tool": name, "parameters": {}}
        fault, manner = self._faults.next()
        if fault == "timeout":
            return StepOutcome(action, result(False, error=TIMED_OUT))
        ok, output, error, read_last = self._world.toolbox.run(tool, self._query, self._last)
        if not ok or not output:
            self._tag(f"{name}#err")
            return StepOutcome(action, result(False, "", error or "the tool returned nothing"))
        if fault == "corrupted":
            output = corrupted(output, manner)
        self._last = output
        self._chain = (*self._chain, tool) if read_last else (tool,)
        self._tags.discard(VERIFIED)
        self._tag(f"{name}#ok")
        return StepOutcome(action, result(True, output))

    def _verify(self) -> StepOutcome:
        action = {"type": "verify", "tool": "", "parameters": {}}
        if not self._last:
            return StepOutcome(action, result(False, "", "there is no result to verify"))
        again = self._recomputed()
        if again is None:
            return StepOutcome(action, result(False, error=TIMED_OUT))
        if again == self._last:
            self._tag(VERIFIED)
            return StepOutcome(action, result(True, "consistent"), verified=True)
        self._tags -= {f"{self._world.names[tool]}#ok" for tool in self._chain}
        self._tags.discard(VERIFIED)
        self._last, self._chain = "", ()
        self._done = tuple(sorted(self._tags))
        return StepOutcome(action, result(False, "inconsistent"), verified=False)

    def _recomputed(self) -> str | None:
        """The chain's result computed again, with faults of its own; None if a call timed out."""
        last = ""
        for tool in self._chain:
            fault, manner = self._faults.next()
            if fault == "timeout":
                return None
            output = self._world.toolbox.run(tool, self._query, last).output
            last = corrupted(output, manner) if fault == "corrupted" and output else output
        return last

    def _tag(self, tag: str) -> None:
        self._tags.add(tag)
        self._done = tuple(sorted(self._tags))


def _task_facts(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Facts about the task that its row names: type, domain, the profile of its agent, and complexity in [0, 1]."""
    found: dict[str, Any] = {
        name: value for name in TASK_FACTS if isinstance(value := metadata.get(name), str) and value
    }
    complexity = metadata.get("complexity_score")
    if isinstance(complexity, int | float) and not isinstance(complexity, bool) and 0 <= complexity <= 1:
        found["complexity_score"] = complexity
    return found
