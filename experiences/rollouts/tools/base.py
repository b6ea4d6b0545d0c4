"""Tool: a pure function of a text that returns another text or a reason for failure; for agents of language models
only, also a function of named arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from agentcore_site.lib.registry import Registry
from budgets.llm.types import ToolSpec


class ToolError(Exception):
    """The text holds nothing this tool can work on. The message becomes the step's error."""


class ToolResult(NamedTuple):
    """Result of one call: ``output`` when ``ok``, else ``error``. ``read_last``: the tool worked on the result before
    it and not on the question."""

    ok: bool
    output: str
    error: str = ""
    read_last: bool = False


class Tool(Protocol):
    """A tool of an agent. ``run`` is pure: equal arguments give equal results, and it never raises."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    def run(self, text: str, last: str) -> ToolResult:
        """Works on ``text`` (the question) or on ``last`` (the result so far, "" for none)."""
        ...


@runtime_checkable
class AgentTool(Protocol):
    """A tool with named arguments, of any source: Python, an MCP server, an environment."""

    @property
    def spec(self) -> ToolSpec: ...

    async def run(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Never raises for what the arguments hold: it answers with a failed result."""
        ...


MAX_TEXT = 20_000  # characters; longer texts are refused, so that no tool can be made to work for long


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """A tool made of a function from text to text that raises ``ToolError`` where it finds nothing to do.

    With ``reads_last`` it tries the last result first and the question second; that makes chains of two tools
    possible.
    """

    name: str
    description: str
    function: Callable[[str], str]
    reads_last: bool = False

    def run(self, text: str, last: str) -> ToolResult:
        if len(text) > MAX_TEXT:
            return ToolResult(False, "", f"the text is longer than {MAX_TEXT} characters")
        if self.reads_last and last:
            try:
                return ToolResult(True, self.function(last), read_last=True)
            except ToolError:
                pass  # the last result is not its kind: it falls back on the question
        try:
            return ToolResult(True, self.function(text))
        except ToolError as error:
            return ToolResult(False, "", str(error))


tools: Registry[Tool | AgentTool] = Registry("tool", entry_point_group="agentcore.tools")
