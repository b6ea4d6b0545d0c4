"""The context of an agent outside of training: lessons with their texts, and the lessons of each query.

It is a value: a candidate is played as one, the gate measures that, and the same value is shipped, in a checkpoint or
in JSON. So each query gets, byte for byte, the context that was proven.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from experiences.learning.lessons.library import Lesson, Library
from experiences.learning.rendering import context_of
from experiences.rollouts.runtimes.base import PromptContext
from experiences.rollouts.types import RolloutKey
from training.policies.query_rule import Choice, QueryRule


@dataclass(frozen=True)
class ServedContext:
    """``lessons`` are the lessons of all queries; ``rule`` chooses the lessons of a query (None: all of them).
    ``version`` is of the policy that it came from."""

    lessons: tuple[Lesson, ...] = ()
    rule: QueryRule | None = None
    version: str = ""

    @classmethod
    def of(cls, library: Library, choice: Choice, version: str = "") -> Self:
        """The live lessons of ``library`` that ``choice`` names, with the texts that they have there."""
        return cls(tuple(library.chosen(choice.handles)), choice.rule, version)

    @cached_property
    def choice(self) -> Choice:
        return Choice(tuple(lesson.handle for lesson in self.lessons), self.rule)

    def lessons_for(self, query: str) -> list[Lesson]:
        """In the library's order."""
        handles = set(self.choice.handles_for(query))
        return [lesson for lesson in self.lessons if lesson.handle in handles]

    def text_for(self, query: str) -> str:
        return context_of(self.lessons_for(query))

    def context_for(self, key: RolloutKey, query: str) -> PromptContext:
        return prompt_context(self.lessons_for(query))

    def as_json(self) -> dict[str, Any]:
        return {
            "lessons": [lesson.as_dict() for lesson in self.lessons],
            "rule": None if self.rule is None else self.rule.as_json(),
            "version": self.version,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        rule = None if stored["rule"] is None else QueryRule.from_state_dict(stored["rule"])
        return cls(Library.of(stored["lessons"]).lessons, rule, stored["version"])


def prompt_context(lessons: list[Lesson], logprob: float | None = None) -> PromptContext:
    """The lessons as a rollout's context, with the note for its record; ``logprob`` is that of their draw."""
    note: dict[str, Any] = {
        "lessons": [lesson.handle for lesson in lessons],
        "tokens": sum(lesson.tokens for lesson in lessons),
    }
    if logprob is not None:
        note["logprob"] = logprob
    return PromptContext(context_of(lessons), note)
