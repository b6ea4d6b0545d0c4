"""Environment: scenarios by split, the actions it offers, and one episode per rollout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np

from agentcore_site.lib.registry import Registry
from experiences.rollouts.tools.base import AgentTool
from experiences.rollouts.types import ActionSpec, Observation, Outcome, Scenario


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """Outcome of an action.

    ``action`` and ``result`` are the JSON values that are recorded; ``done`` ends the episode; ``verified`` is
    a verify step's verdict (None for other steps, and for one that came to no verdict).
    """

    action: dict[str, Any]
    result: dict[str, Any]
    done: bool = False
    verified: bool | None = None
    tokens: int = 0
    cost_micros: int = 0


def result(success: bool, output: str = "", error: str = "") -> dict[str, Any]:
    """Result of an action as recorded, for the agent to read."""
    return {"success": success, "output": output, "error": error}


class Episode(Protocol):
    """One attempt at one scenario. Owned by one rollout; never shared. What plays it asks for more: ``ActionEpisode``,
    ``TextEpisode`` or both."""

    def outcome(self) -> Outcome:
        """Scores the episode as it is now; never raises (an exception of the scorer is a score of 0, counted
        in the evidence)."""
        ...

    async def close(self) -> None: ...


class ActionEpisode(Episode, Protocol):
    """An episode for agents that choose among the environment's ``actions``."""

    def observe(self) -> Observation: ...

    async def step(self, choice: int) -> StepOutcome:
        """Does action ``choice``, an index. A tool's failure is a result, never an exception."""
        ...


class TextWorld(Protocol):
    """A question to be answered in text, or a world that answers each message.

    ``one_answer`` says which: with it the first message that calls no tool is the answer.
    """

    @property
    def one_answer(self) -> bool: ...

    async def opening(self) -> str:
        """The first message to the agent: the question, and the format that this world requires."""
        ...

    async def say(self, text: str) -> StepOutcome:
        """Takes a message without a tool call. ``done``: it was the answer, or it ended the episode; else the result's
        output goes back to the agent."""
        ...


@runtime_checkable
class TextEpisode(TextWorld, Episode, Protocol):
    """An episode for agents that write text."""


@runtime_checkable
class EquippedEpisode(TextEpisode, Protocol):
    """An episode that brings tools of its own. A language model that plays it gets these and none of its agent's, so
    that what it calls here does nothing elsewhere."""

    @property
    def tools(self) -> Sequence[AgentTool]: ...


class Environment(Protocol):
    """A world to train in.

    ``scenarios(split, n, seed)`` is deterministic, and the splits "train", "selection" and "held_out" of one
    seed share neither items nor texts. ``lines`` names the extra held-out lines the environment can report
    (e.g. "harder_numbers", "unseen_wording"); each is a legal ``split`` too.
    """

    @property
    def name(self) -> str: ...

    @property
    def actions(self) -> tuple[ActionSpec, ...]: ...

    @property
    def lines(self) -> tuple[str, ...]: ...

    def scenarios(self, split: str, n: int, seed: int) -> Sequence[Scenario]: ...

    def start(self, scenario: Scenario, rng: np.random.Generator) -> Episode: ...


class EnvironmentFactory(Protocol):
    """Builds an environment from its options. ``description`` and ``option_help`` feed forms and docs, and so does a
    ``title`` if it has one. One that only a language model can play also has ``speaks_text_only = True``, one whose
    episodes have tools of their own ``brings_tools = True``.

    Raises:
        ValueError: an option is unknown or out of range; the message says what to do.
    """

    @property
    def description(self) -> str: ...

    @property
    def option_help(self) -> Mapping[str, str]: ...

    def __call__(self, options: Mapping[str, Any]) -> Environment: ...


environments: Registry[EnvironmentFactory] = Registry("environment", entry_point_group="agentcore.environments")


def is_a_world(name: str) -> bool:
    """True if episodes of the environment bring tools of their own or answer each message. Only the environment can
    play such episodes."""
    factory = environments.get(name) if name in environments.names() else None
    answers_back = getattr(factory, "speaks_text_only", False) and not getattr(factory, "one_answer", False)
    return bool(getattr(factory, "brings_tools", False) or answers_back)


SHARES: Final = {"train": 0.5, "selection": 0.1, "held_out": 0.4}  # in this order along the shuffled tasks


def split_of(size: int, split: str, n: int, seed: int, hint: str = "") -> list[int]:
    """``n`` of the tasks 0 … ``size`` - 1. The seed shuffles the tasks, then each split has its share: none is in two.

    Raises:
        ValueError: the split is unknown, n is below 1, or the split has fewer tasks; ``hint`` ends that message.
    """
    if split not in SHARES:
        raise ValueError(f"There is no split {split!r}. Known: {', '.join(SHARES)}.")
    if n < 1:
        raise ValueError(f"The number of scenarios must be at least 1; got {n}.")
    train = round(SHARES["train"] * size)
    selection = train + round(SHARES["selection"] * size)
    first, last = {"train": (0, train), "selection": (train, selection), "held_out": (selection, size)}[split]
    if n > last - first:
        raise ValueError(
            f"Of {size} tasks the split {split} has {last - first}, and {n} were asked for. Lower pool.{split}{hint}."
        )
    return np.random.default_rng((seed, size)).permutation(size)[first : first + n].tolist()
