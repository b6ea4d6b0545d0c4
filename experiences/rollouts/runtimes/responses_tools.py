"""Tools of OpenAI's Responses API as functions of a chat completion, and their calls back.

A custom tool takes a text: it becomes a function with the one argument ``input``. Tools of a namespace become functions
whose names begin with that of the namespace.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, TypeAdapter, model_validator
from pydantic_core import from_json

from budgets.llm.types import ToolCall
from budgets.llm.wire import dumped_json
from experiences.rollouts.runtimes.chat_answer import arguments_of
from experiences.rollouts.runtimes.chat_body import ContentPart

INPUT: Final = "input"  # the argument of a custom tool's function
OURS: Final = ("function", "custom", "namespace")
AT_THE_SERVICE: Final = "is no tool that the caller runs, and chat completions have none that the service runs"
REMEDIES: Final = {"web_search": '; Codex leaves it out by web_search = "disabled" in its config.toml'}


class ToolName(NamedTuple):
    """A tool as its caller knows it."""

    type: Literal["function", "custom"]
    name: str
    namespace: str = ""


def _known(kind: Any) -> Any:
    if isinstance(kind, str) and kind not in OURS:
        taken = f"send tools of the types {', '.join(OURS)}"
        raise ValueError(f"{kind[:40]!r} {AT_THE_SERVICE}: {taken}{REMEDIES.get(kind, '')}")
    return kind


class _Format(ContentPart):
    type: Literal["text", "grammar"]
    syntax: Literal["lark", "regex"] | None = None
    definition: str | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.type == "grammar" and not (self.syntax and self.definition):
            raise ValueError("a grammar has a syntax and a definition")
        return self


class ResponseTool(ContentPart):
    """A function, a custom tool, or a namespace of both."""

    type: Annotated[Literal["function", "custom", "namespace"], BeforeValidator(_known)]
    name: str = Field(min_length=1)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    format: _Format | None = None
    tools: list[ResponseTool] | None = None

    @model_validator(mode="after")
    def _of_its_type(self) -> Self:
        if self.type == "namespace" and (not self.tools or any(one.type == "namespace" for one in self.tools)):
            raise ValueError("a namespace holds functions and custom tools")
        return self

    def functions(self, namespace: str = "") -> list[dict[str, Any]]:
        """The same as tools of a chat completion."""
        if self.type == "namespace":
            return [function for tool in self.tools or () for function in tool.functions(self.name)]
        fields = self.model_dump(include={"description", "parameters", "strict"}, exclude_none=True)
        if self.type == "custom":
            fields = {"description": self._input_words(), "parameters": PARAMETERS}
        return [{"type": "function", "function": {"name": chat_name(self.name, namespace), **fields}}]

    def _input_words(self) -> str:
        """A custom tool's description with what its input looks like, which no chat completion enforces."""
        words = [self.description or "", f"Its whole input is the text of the argument {INPUT!r}."]
        if self.format is not None and self.format.type == "grammar":
            words.append(f"The text follows this grammar ({self.format.syntax}):\n{self.format.definition}")
        return "\n\n".join(filter(None, words))


PARAMETERS: Final = {
    "type": "object",
    "properties": {INPUT: {"type": "string", "description": "The tool's input as plain text."}},
    "required": [INPUT],
    "additionalProperties": False,
}
_TOOLS: Final[TypeAdapter[list[ResponseTool]]] = TypeAdapter(list[ResponseTool])


class NamedTool(ContentPart):
    """The tool that the model must call."""

    type: Literal["function", "custom"]
    name: str = Field(min_length=1)
    namespace: str | None = None

    def chat(self) -> dict[str, Any]:
        return {"type": "function", "function": {"name": chat_name(self.name, self.namespace or "")}}


class AllowedTools(ContentPart):
    """Some of the tools of a request, of which the model may or must call one."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: list[NamedTool] = Field(min_length=1)

    def chat(self) -> dict[str, Any]:
        named = [tool.chat() for tool in self.tools]
        return {"type": "allowed_tools", "allowed_tools": {"mode": self.mode, "tools": named}}


def chat_name(name: str, namespace: str = "") -> str:
    """The name of a tool's function in a chat completion."""
    return f"{namespace.removesuffix('__')}__{name}" if namespace else name


def tools_in(response: Mapping[str, Any]) -> Sequence[ResponseTool]:
    """The tools that a response repeats."""
    return _TOOLS.validate_python(response.get("tools") or [])


def names_of(tools: Iterable[ResponseTool]) -> dict[str, ToolName]:
    """The callers' names of ``tools``, by their names in a chat completion.

    Raises:
        ValueError: two different tools have the same name there.
    """
    found: dict[str, ToolName] = {}
    for tool in tools:
        for one in tool.tools or () if tool.type == "namespace" else (tool,):
            assert one.type != "namespace"
            name = ToolName(one.type, one.name, tool.name if tool.type == "namespace" else "")
            named = chat_name(one.name, name.namespace)
            if found.setdefault(named, name) != name:
                raise ValueError(f"two tools have the name {named!r} in a chat completion")
    return found


def arguments_for(text: str) -> str:
    """The arguments of a custom tool's function."""
    return dumped_json({INPUT: text}).decode()


def input_of(call: ToolCall) -> str:
    """The text with which a custom tool is called. Some models give its argument another name, or write it alone."""
    given = call.arguments
    texts = [given[INPUT]] if INPUT in given else list(given.values())
    if len(texts) == 1 and isinstance(texts[0], str):
        return texts[0]
    return arguments_of(call) if given or call.raw else ""


def input_until(arguments: str) -> str:
    """As much of the text as the beginning of a call's ``arguments`` holds for certain."""
    try:
        found = from_json(arguments, allow_partial="trailing-strings")
    except ValueError:
        return ""
    text = found.get(INPUT) if isinstance(found, dict) else None
    return text if isinstance(text, str) else ""
