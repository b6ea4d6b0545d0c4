"""The registry's tools as agents with a language model get them: each does what it is asked or says that it can't.

Some of the embedded environment's tools answer almost any text, to be learned around. Those have strict twins here, and
the two calculators that read only a part of a text are the ``calculator`` under their old names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from experiences.rollouts.tools.base import AgentTool, Tool, tools
from experiences.rollouts.tools.calculator import CALCULATOR
from experiences.rollouts.tools.toolbox import BUILT_IN, strict

tools.register(CALCULATOR.name)(CALCULATOR)

_OLD_NAMES: Final[Mapping[str, Tool]] = {name: replace(CALCULATOR, name=name) for name in ("int_calc", "dec_calc")}
_PUZZLE_ONLY: Final = frozenset({*_OLD_NAMES, "numerals", "animals", "shift_decoder"})
QUICK: Final[tuple[Tool, ...]] = (CALCULATOR, *_OLD_NAMES.values(), *map(strict, BUILT_IN))
"""Ours, which answer at once and need no thread."""


def offered(name: str) -> Tool | AgentTool:
    """The tool of that name. Those that are not offered any more are still there for agents that have them.

    Raises:
        UnknownName: it is not registered.
    """
    found = tools.get(name)
    if found not in BUILT_IN:
        return found
    return _OLD_NAMES.get(name, strict(found))


def offers() -> Iterator[tuple[str, str]]:
    """(name, description) of what an agent can be given."""
    for name, found in tools.items():
        if found in BUILT_IN and name in _PUZZLE_ONLY:
            continue
        tool = offered(name)
        yield name, tool.spec.description if isinstance(tool, AgentTool) else tool.description
