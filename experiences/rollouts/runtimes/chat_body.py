"""The body of a chat completion as a foreign agent sends it: checked whole, before anything is made of it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Final, Literal, NoReturn, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from agentcore_site.lib.json_values import most_values
from agentcore_site.lib.storable import HALF, unstorable
from budgets.llm.content import Content, content_in
from budgets.llm.halves import all_paired
from budgets.llm.opaque import opaque_of_call, opaque_of_message
from budgets.llm.types import Message, ToolCall, ToolSpec
from experiences.rollouts.runtimes.llm.calls import CallOptions

MAX_MESSAGES: Final = 1_000
MOST_VALUES: Final = 500_000  # of a body
Body = TypeVar("Body", bound=BaseModel)


class BadCall(Exception):
    """The request is not one that the gateway takes; the message is for the agent's author, ``param`` the field."""

    def __init__(
        self, message: str, status: int = 400, kind: str = "invalid_request_error", param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.kind, self.param = status, kind, param


def text_of(content: Any, kinds: Collection[str] = ("text",)) -> str:
    """The texts of a message's content, which may come in parts of these ``kinds``. Raises ValueError."""
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") for part in parts if isinstance(part, Mapping) and part.get("type") in kinds]
    if len(texts) != len(parts) or not all(isinstance(text, str) for text in texts):
        raise ValueError("it holds something else than text, which can't be priced in advance")
    return "".join(map(str, texts))


def _stops(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class ContentPart(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")


class OpenPart(ContentPart):
    """Fields that only a model's service understands are kept: it wants them back."""

    model_config = ConfigDict(strict=True, extra="allow")


class _CalledFunction(OpenPart):
    name: str = ""
    arguments: str | dict[str, Any] | None = None


class _Call(OpenPart):
    id: str | None = None
    function: _CalledFunction

    def value(self) -> ToolCall:
        given = self.function.arguments
        try:
            found = loaded(given) if isinstance(given, str) else given
        except ValueError:
            found = None
        raw = given if isinstance(given, str) else ""
        opaque = opaque_of_call((self.model_extra or {}) | {"function": self.function.model_extra or {}})
        return ToolCall(self.id or "", self.function.name, found if isinstance(found, dict) else {}, raw, opaque=opaque)


def _content(content: Any) -> Any:
    """Texts, and the thoughts of a model among them. Raises ValueError."""
    found = content_in(content, whole=False) if isinstance(content, list) else None
    return content if found is not None and found.reasoning and not found.notes else text_of(content)


class _MessageIn(OpenPart):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[str | list[Any], BeforeValidator(_content)] = ""
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None
    name: str | None = None

    def value(self) -> Message:
        opaque = opaque_of_message(self.model_extra or {}) if self.role == "assistant" else {}
        content = self.content
        if not isinstance(content, str):
            opaque, content = {**opaque, "content": content}, (content_in(content) or Content()).text
        return Message(
            role="system" if self.role == "developer" else self.role,
            content=content,
            tool_calls=tuple(call.value() for call in self.tool_calls or ()),
            tool_call_id=self.tool_call_id or "",
            name=self.name or "",
            opaque=opaque,
        )


class _Function(ContentPart):
    name: str = Field(min_length=1)
    description: str | None = None
    parameters: dict[str, Any] | None = None


class _Tool(ContentPart):
    function: _Function

    def value(self) -> ToolSpec:
        function = self.function
        return ToolSpec(
            function.name, function.description or "", function.parameters or {"type": "object", "properties": {}}
        )


class ChatBody(ContentPart):
    """Fields of a request that are passed on; others are left out (the job sets the model)."""

    messages: list[_MessageIn] = Field(min_length=1, max_length=MAX_MESSAGES)
    tools: list[_Tool] | None = None
    tool_choice: Literal["auto", "none", "required"] | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    max_tokens: int | None = Field(default=None, gt=0)
    max_completion_tokens: int | None = Field(default=None, gt=0)
    temperature: float | None = Field(default=None, ge=0, le=2)
    response_format: dict[str, Any] | None = None
    stop: Annotated[list[str] | None, BeforeValidator(_stops)] = None
    stream: bool | None = None
    n: Literal[1] | None = None

    @property
    def limit(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    def conversation(self) -> list[Message]:
        return [message.value() for message in self.messages]

    def specs(self) -> list[ToolSpec]:
        return [tool.value() for tool in self.tools or ()]

    def options(self) -> CallOptions:
        """The options that the request set."""
        given: CallOptions = {}
        if self.response_format is not None:
            given["response_format"] = self.response_format
        if self.stop:
            given["stop"] = self.stop
        if self.tool_choice is not None:
            given["tool_choice"] = self.tool_choice
        if self.parallel_tool_calls is not None:
            given["parallel_tool_calls"] = self.parallel_tool_calls
        return given


def body_in(read: bytes, kind: type[Body]) -> Body:
    """The JSON object that was sent. Raises BadCall: what is wrong, and where."""
    try:
        found = loaded(read)
    except ValueError as error:
        raise BadCall(f"The body is no JSON that can be used: {error}.") from None
    if not isinstance(found, dict):
        raise BadCall("The body is no JSON object.")
    try:
        return kind.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise BadCall(f"{place}: {first['msg'].removeprefix('Value error, ')}.", param=place) from None


def loaded(text: str | bytes) -> Any:
    """JSON from outside; halves of surrogate pairs are joined or replaced.

    Raises:
        ValueError: it is no JSON, has numbers that JSON does not know, too many values, or can't be stored.
    """
    if isinstance(text, bytes) and most_values(text) > MOST_VALUES:
        raise ValueError(f"it may have more than {MOST_VALUES:,} values")
    try:
        found = json.loads(text, parse_constant=_refused)
        if unstorable(found) == HALF:
            found = all_paired(found)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if reason := unstorable(found):
        raise ValueError(reason)
    return found


def _refused(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")
