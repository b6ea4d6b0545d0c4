"""Family of generated tasks: a task from random numbers, and its verdict on an answer. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from budgets.llm.types import ToolSpec
from experiences.rollouts.tools.base import AgentTool, ToolResult

Verdict = tuple[bool, str]
"""(right, why): a sentence where it is wrong."""


@dataclass(frozen=True)
class WorkTask:
    """One task. ``check`` judges an answer; ``expected`` is shown beside it. ``tools`` act on a state that belongs to
    this task alone, which ``check`` may look at."""

    question: str
    expected: Any
    check: Callable[[str], Verdict]
    tools: Sequence[AgentTool] = ()


@dataclass(frozen=True)
class WorkFamily:
    """``make`` gives equal tasks for equal random numbers."""

    category: str
    description: str
    make: Callable[[random.Random], WorkTask]
    uses_tools: bool = False


@dataclass(frozen=True)
class WorkTool:
    """A tool made of a function of texts that answers with a text, or raises ``ValueError`` with what was wrong."""

    name: str
    description: str
    arguments: Mapping[str, str]  # by name, what it is
    function: Callable[..., str]

    @property
    def spec(self) -> ToolSpec:
        properties = {name: {"type": "string", "description": text} for name, text in self.arguments.items()}
        schema = {
            "type": "object",
            "properties": properties,
            "required": list(self.arguments),
            "additionalProperties": False,
        }
        return ToolSpec(self.name, self.description, schema)

    async def run(self, arguments: Mapping[str, Any]) -> ToolResult:
        if set(arguments) != set(self.arguments):
            return ToolResult(False, "", f"call it with {', '.join(self.arguments) or 'nothing'}")
        try:
            return ToolResult(True, self.function(**{name: str(value).strip() for name, value in arguments.items()}))
        except ValueError as error:
            return ToolResult(False, "", str(error))


@dataclass
class Families:
    """Families by name, in the order in which they were written."""

    found: dict[str, WorkFamily] = field(default_factory=dict)

    def register(
        self, category: str, description: str, *, uses_tools: bool = False
    ) -> Callable[[Callable[[random.Random], WorkTask]], Callable[[random.Random], WorkTask]]:
        def add(make: Callable[[random.Random], WorkTask]) -> Callable[[random.Random], WorkTask]:
            self.found[make.__name__] = WorkFamily(category, description, make, uses_tools)
            return make

        return add


FAMILIES: Final = Families()

NAMES: Final = (
    "Adela", "Bruno", "Carla", "Dario", "Edith", "Felix", "Greta", "Hugo", "Irina", "Jonas", "Klara", "Lorenz", "Marta",
    "Nils", "Olga", "Pavel", "Rosa", "Simon", "Thea", "Ulrich", "Vera", "Wanda", "Xaver", "Yvonne",
)  # fmt: skip
TOWNS: Final = (
    "Arlau", "Bregen", "Cosmin", "Dorval", "Elmet", "Farsund", "Gravel", "Hollin", "Istrad", "Jarrow", "Kesten",
    "Lunden", "Morava", "Nordal", "Ostrow", "Pellin",
)  # fmt: skip


def numbers_right(answer: str, expected: float, tolerance: float) -> Verdict:
    """The answer's last number is the expected one, and neither one of several nor changed by a sign."""
    from experiences.rollouts.environments.number_reading import reading_of

    found = reading_of(answer)
    right = (
        found is not None
        and not (found.unclear or found.touched or found.percent)
        and abs(found.value - expected) <= tolerance
    )
    return right, "" if right else f"expected {expected:g}"


def words_right(answer: str, expected: str) -> Verdict:
    """The answer is the expected word, in any case, as ``comparable`` writes both."""
    from experiences.rollouts.environments.answers import comparable

    right = comparable(answer) == comparable(expected)
    return right, "" if right else f"expected {expected}"
