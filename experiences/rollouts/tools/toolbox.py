"""The tools of one environment, in a fixed order, with their results remembered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from experiences.rollouts.tools import (
    calculators,
    cipher,
    conversions,
    dates,
    equations,
    leg_counts,
    number_theory,
    numerals,
    word_lists,
)
from experiences.rollouts.tools.base import AgentTool, Tool, ToolResult, tools

TRAPS = {
    "none": frozenset[str](),
    "three": frozenset({"gcd", "factor", "reverse_letters"}),
    "all": frozenset({"gcd", "factor", "reverse_letters", "lcm", "dec_calc"}),
}
"""The built-in tools that are greedy (answer almost any text), by trap level."""

_STRICT: dict[str, Tool] = {
    tool.name: tool
    for tool in (
        number_theory.GCD_STRICT,
        number_theory.LCM_STRICT,
        number_theory.FACTOR_STRICT,
        word_lists.REVERSE_LETTERS_STRICT,
        calculators.DEC_CALC_STRICT,
    )
}
BUILT_IN: tuple[Tool, ...] = (
    calculators.INT_CALC,
    calculators.DEC_CALC_GREEDY,
    number_theory.GCD_GREEDY,
    number_theory.LCM_GREEDY,
    number_theory.FACTOR_GREEDY,
    number_theory.REDUCE_FRACTION,
    numerals.CONVERT_BASE,
    numerals.NUMERALS,
    leg_counts.ANIMALS,
    word_lists.REVERSE_LETTERS_GREEDY,
    word_lists.COUNT_LETTER,
    word_lists.SORT_WORDS,
    word_lists.SORT_NUMBERS,
    dates.CALENDAR,
    equations.SOLVE_LINEAR,
    cipher.SHIFT_DECODER,
    conversions.ROMAN_NUMERAL,
    conversions.CONVERT_UNITS,
    conversions.PERCENTAGE,
    conversions.TIME_BETWEEN,
)
for _tool in BUILT_IN:
    tools.register(_tool.name)(_tool)


class Toolbox(Sequence[Tool]):
    """Tools by position. ``run`` remembers results, because a tool is a pure function of what it reads and a
    training run asks the same thing many times."""

    REMEMBERED = 50_000

    def __init__(self, chosen: Iterable[Tool]) -> None:
        self._tools = tuple(chosen)
        self._results: dict[tuple[int, str, str], ToolResult] = {}
        self._reads_last = tuple(getattr(tool, "reads_last", True) for tool in self._tools)
        names = [tool.name for tool in self._tools]
        if not names or len(set(names)) != len(names):
            raise ValueError("A toolbox needs at least one tool, and no two of the same name.")

    def __len__(self) -> int:
        return len(self._tools)

    def __getitem__(self, index: int) -> Tool:  # type: ignore[override]  # no slices needed
        return self._tools[index]

    def run(self, index: int, text: str, last: str) -> ToolResult:
        """The result of tool ``index``; an exception of a user's own tool is a failed result too."""
        key = (index, text, last if self._reads_last[index] else "")
        result = self._results.get(key)
        if result is None:
            result = self._run(index, text, last)
            if len(self._results) >= self.REMEMBERED:
                self._results.clear()
            self._results[key] = result
        return result

    def _run(self, index: int, text: str, last: str) -> ToolResult:
        try:
            return self._tools[index].run(text, last)
        except Exception as error:  # a plugin's bug is a step's result, never a crash
            return ToolResult(False, "", f"{type(error).__name__}: {error}")


def toolbox(names: Sequence[str] = (), *, traps: str = "three") -> Toolbox:
    """The named tools, or all built-in ones in their fixed order.

    Raises:
        ValueError: the trap level is unknown, there are no or equal names, or a tool wants named arguments.
        UnknownName: a tool is not registered.
    """
    if traps not in TRAPS:
        raise ValueError(f"traps must be one of {', '.join(TRAPS)}; got {traps!r}.")
    chosen = [_of_text(name) for name in names] or list(BUILT_IN)
    greedy = TRAPS[traps]
    return Toolbox(tool if tool.name in greedy else strict(tool) for tool in chosen)


def strict(tool: Tool) -> Tool:
    """The twin of a greedy built-in tool that refuses what is not its kind; any other tool itself."""
    return _STRICT.get(tool.name, tool) if tool in BUILT_IN else tool


def _of_text(name: str) -> Tool:
    tool = tools.get(name)
    if isinstance(tool, AgentTool):
        raise ValueError(f"The tool {name!r} has named arguments: only an agent with a language model can call it.")
    return tool
