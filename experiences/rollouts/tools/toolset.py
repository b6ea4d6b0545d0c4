"""The tools that a model may call: a permission list, a time limit and a size limit around each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from budgets.llm.types import ToolSpec
from experiences.privacy import cut_short
from experiences.rollouts.tools.base import AgentTool, Tool, ToolResult
from experiences.rollouts.tools.llm_tools import QUICK, offered
from experiences.rollouts.tools.threads import TooManyHang, threads

TIMEOUT_SECONDS: Final = 30.0
MAX_OUTPUT: Final = 20_000  # characters that a model reads of one result


@dataclass(frozen=True)
class TextTool:
    """A tool of the registry (text in, text out) as a model calls it: with one argument, the text."""

    tool: Tool

    @property
    def spec(self) -> ToolSpec:
        parameters = {
            "type": "object",
            "properties": {"text": {"type": "string", "description": "The text to work on."}},
            "required": ["text"],
            "additionalProperties": False,
        }
        return ToolSpec(self.tool.name, self.tool.description, parameters)

    async def run(self, arguments: Mapping[str, Any]) -> ToolResult:
        text = arguments.get("text")
        if not isinstance(text, str):
            return ToolResult(False, "", 'call it with {"text": "..."}')
        if self.tool in QUICK:
            return self.tool.run(text, "")
        return await threads.run(self.tool.name, self.tool.run, text, "")  # a user's own may wait or work for long


class Toolset:
    """The tools that one agent may call, and no others.

    Raises:
        ValueError: two tools have the same name.
    """

    def __init__(
        self, allowed: Iterable[AgentTool] = (), *, timeout_s: float = TIMEOUT_SECONDS, max_output: int = MAX_OUTPUT
    ) -> None:
        chosen = list(allowed)
        self._tools = {tool.spec.name: tool for tool in chosen}
        if len(self._tools) != len(chosen):
            raise ValueError("Two tools have the same name.")
        self._timeout_s = timeout_s
        self._max_output = max_output
        self.specs: Sequence[ToolSpec] = tuple(tool.spec for tool in chosen)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Runs a tool. Every failure is a result that says what went wrong."""
        tool = self._tools.get(name)
        if tool is None:
            known = ", ".join(self._tools) or "none"
            return ToolResult(False, "", f"there is no tool {name[:80]!r}; yours: {known}")
        try:
            async with asyncio.timeout(self._timeout_s):
                result = await tool.run(arguments)
        except TimeoutError:
            return ToolResult(False, "", f"timeout: no result within {self._timeout_s:g} s")
        except TooManyHang as error:
            return ToolResult(False, "", str(error))
        except Exception as error:  # a plugin's bug is a step's result, never a crash
            return ToolResult(False, "", f"{type(error).__name__}: {error}"[: self._max_output])
        return self._bounded(result)

    def _bounded(self, result: ToolResult) -> ToolResult:
        output, error = result.output, result.error
        if len(output) > self._max_output:
            output = f"{cut_short(output, self._max_output)}\n[cut: {len(result.output):,} characters]"
        return result._replace(output=output, error=cut_short(error, self._max_output))


def python_tools(names: Iterable[str]) -> list[AgentTool]:
    """Tools of the registry by name.

    Raises:
        UnknownName: one is not registered.
    """
    found = map(offered, names)
    return [tool if isinstance(tool, AgentTool) else TextTool(tool) for tool in found]
