"""Checks in the calls of an HTTP agent whether its context reached the model.

An agent that drops its context can't learn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from budgets.llm.types import Message
from experiences.rollouts.runtimes.base import PromptContext
from experiences.rollouts.types import Step, Trajectory

ARRIVED: Final = "told"  # in a step's state: the note of a context that had arrived by then
DROPPED: Final = "dropped_context"  # in the state of the last step: that of one that never did


class Arrival:
    """Searches one rollout's context in the agent's calls, and notes in its steps what became of it.

    A context has arrived when one call holds each of its lines, in any message and with any white space.
    """

    def __init__(self, context: PromptContext) -> None:
        self._lines = [_one_line(line) for line in context.text.splitlines() if line.strip()]
        self._note = dict(context.note) if context.text or "logprob" in context.note else None
        self._arrived, self._answered = not self._lines, False

    def check(self, messages: Iterable[Message]) -> None:
        if not self._arrived:
            sent = _one_line(" ".join(message.content for message in messages))
            self._arrived = all(line in sent for line in self._lines)

    def answered(self) -> None:
        """The agent has answered: what has not arrived by now was dropped."""
        self._answered = True

    def noting(self, record: Callable[[Step], None]) -> Callable[[Step], None]:
        """Records as ``record`` does; the first step by which it is known says what became of the context."""

        def recorded(step: Step) -> None:
            if self._note is not None and (self._arrived or self._answered):
                name = ARRIVED if self._arrived else DROPPED
                step, self._note = replace(step, state=step.state | {name: self._note}), None
            record(step)

        return recorded


def context_arrived(trajectories: Iterable[Trajectory]) -> bool | None:
    """Whether the contexts of most of these rollouts arrived; None where none was sent, or none was answered."""
    states = [step.state for trajectory in trajectories for step in trajectory.steps]
    arrived = sum(bool(state[ARRIVED].get("lessons")) for state in states if ARRIVED in state)
    dropped = sum(DROPPED in state for state in states)
    return arrived >= dropped if arrived or dropped else None


def _one_line(text: str) -> str:
    return " ".join(text.split())
