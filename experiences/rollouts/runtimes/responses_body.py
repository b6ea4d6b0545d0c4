"""The body of a request to OpenAI's Responses API, checked whole and put into the words of a chat completion, which is
what every model's server speaks."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, TypeAdapter, field_validator, model_validator

from budgets.llm.opaque import opaque_of_message
from budgets.llm.wire import dumped_json
from experiences.rollouts.runtimes.chat_body import (
    MAX_MESSAGES,
    BadCall,
    ChatBody,
    ContentPart,
    OpenPart,
    loaded,
    text_of,
)
from experiences.rollouts.runtimes.responses_tools import (
    AllowedTools,
    NamedTool,
    ResponseTool,
    arguments_for,
    chat_name,
    names_of,
)

TEXTS: Final = frozenset({"input_text", "output_text", "text"})
OWN_OF_ITEM: Final = frozenset({"id", "type", "status", "caller"})  # of the API, not of a model's service
SEAL: Final = "agentcore:"
IMAGE_FOLLOWS: Final = "The result is an image, which follows."
FORMATS: Final = frozenset({"text", "json_object", "json_schema"})
ChatMessage = dict[str, Any]  # of a chat completion's ``messages``


def _text(content: Any) -> str:
    if isinstance(content, list):  # a refusal that the model gave before
        content = [_refused(part) for part in content]
    return text_of(content, TEXTS)


def _refused(part: Any) -> Any:
    refusal = isinstance(part, Mapping) and part.get("type") == "refusal"
    return {"type": "output_text", "text": part.get("refusal")} if refusal else part


class _Image(ContentPart):
    image_url: str = Field(min_length=1)
    detail: Literal["auto", "low", "high"] | None = None
    file_id: None = None  # files are not kept here

    def chat(self) -> dict[str, Any]:
        return {
            "type": "image_url",
            "image_url": self.model_dump(exclude={"image_url"}, exclude_none=True) | {"url": self.image_url},
        }


def _content(content: Any) -> Any:
    """A text, or parts of a chat completion where there are images among them. Raises ValueError."""
    if isinstance(content, list) and any(_is_file(part) for part in content):
        raise ValueError("it holds a file, which can't be priced in advance: send its text, or images of its pages")
    if not isinstance(content, list) or not any(_is_image(part) for part in content):
        return _text(content)
    return [
        _Image.model_validate(part).chat() if _is_image(part) else {"type": "text", "text": _text([part])}
        for part in content
    ]


def _is_file(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "input_file"


def _is_image(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "input_image"


class MessageItem(ContentPart):
    """A message of one role. Images are for models that see: who passes this on refuses them where none does."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[str | list[dict[str, Any]], BeforeValidator(_content)]

    @model_validator(mode="after")
    def _shown_by_users(self) -> Self:
        if self.role != "user" and not isinstance(self.content, str):
            raise ValueError("only a user's message holds images")
        return self

    def put(self, messages: list[ChatMessage]) -> None:
        before = messages[-1] if messages else {}
        fields = before.keys() - {"role", "content"}
        if self.role == "assistant" and fields and "tool_calls" not in fields and not before["content"]:
            messages[-1] = {**before, "content": self.content}  # its thoughts came first
            return
        messages.append({"role": self.role, "content": self.content})


class CallItem(OpenPart):
    """A function that the model called. A chat completion has all calls of one answer in one message."""

    call_id: str = Field(min_length=1)
    name: str
    namespace: str | None = None
    arguments: str

    def put(self, messages: list[ChatMessage]) -> None:
        if not messages or messages[-1]["role"] != "assistant":
            messages.append({"role": "assistant", "content": ""})
        opaque = {name: value for name, value in (self.model_extra or {}).items() if name not in OWN_OF_ITEM}
        within = opaque.pop("function", {})
        called = {"name": chat_name(self.name, self.namespace or ""), "arguments": self.arguments}
        function = {**called, **(within if isinstance(within, dict) else {})}
        call = {"id": self.call_id, "type": "function", **opaque, "function": function}
        messages[-1].setdefault("tool_calls", []).append(call)


class CustomCallItem(CallItem):
    """A custom tool that the model called with a text."""

    input: str
    arguments: str = ""

    @model_validator(mode="after")
    def _as_arguments(self) -> Self:
        self.arguments = arguments_for(self.input)
        return self


class ShownResults(dict[str, Any]):
    """A user's message with the images of tools' results: none of its words are the user's."""


class OutputItem(ContentPart):
    """The result of a called tool: a text, or parts with images."""

    call_id: str = Field(min_length=1)
    output: Annotated[str | list[dict[str, Any]], BeforeValidator(_content)]

    def put(self, messages: list[ChatMessage]) -> None:
        """A tool's message of a chat completion holds text only, and no message may come between the results of one
        answer's calls. So all images follow in a user's message behind them."""
        result = {"role": "tool", "tool_call_id": self.call_id}
        if isinstance(self.output, str):
            messages.insert(_behind_results(messages), {**result, "content": self.output})
            return
        text = "".join(part["text"] for part in self.output if part["type"] == "text")
        messages.insert(_behind_results(messages), {**result, "content": text or IMAGE_FOLLOWS})
        if not isinstance(messages[-1], ShownResults):
            messages.append(ShownResults(role="user", content=[]))
        label = {"type": "text", "text": f"From the result of {self.call_id}:"}
        images = [part for part in self.output if part["type"] != "text"]
        messages[-1]["content"] = [*messages[-1]["content"], label, *images]


def _behind_results(messages: Sequence[ChatMessage]) -> int:
    """The place behind the results that were put before."""
    return len(messages) - (bool(messages) and isinstance(messages[-1], ShownResults))


class ReasoningItem(ContentPart):
    """Reasoning of a model. Ours holds the fields that the model's service wants back; another's is left out."""

    encrypted_content: str | None = None

    def put(self, messages: list[ChatMessage]) -> None:
        opaque = opened(self.encrypted_content or "")
        if not opaque:
            return
        if messages and messages[-1]["role"] == "assistant":  # a stream ends with it
            messages[-1] = {**opaque, **messages[-1]}
        else:
            messages.append({**opaque, "role": "assistant", "content": ""})


def sealed(opaque: Mapping[str, Any]) -> str:
    """Fields of a message as text, for ``encrypted_content``: callers send it back as it is."""
    return SEAL + base64.urlsafe_b64encode(dumped_json(opaque)).decode()


def opened(text: str) -> dict[str, Any]:
    """The fields in a ``sealed`` text; {} for any other one."""
    try:
        found = loaded(base64.urlsafe_b64decode(text.removeprefix(SEAL))) if text.startswith(SEAL) else {}
    except ValueError:
        return {}
    return opaque_of_message(found) if isinstance(found, dict) else {}


def _type_of(item: Any) -> str:
    """A message may leave its type out."""
    return str(item.get("type", "message")) if isinstance(item, Mapping) else "message"


Item = Annotated[
    Annotated[MessageItem, Tag("message")]
    | Annotated[CallItem, Tag("function_call")]
    | Annotated[OutputItem, Tag("function_call_output")]
    | Annotated[CustomCallItem, Tag("custom_tool_call")]
    | Annotated[OutputItem, Tag("custom_tool_call_output")]
    | Annotated[ReasoningItem, Tag("reasoning")],
    Discriminator(
        _type_of,
        custom_error_type="item_type",
        custom_error_message="only messages, reasoning, and calls of functions and custom tools with their outputs are "
        "taken here; an item_reference names what is not kept, so send the item itself",
    ),
]


def _images_at(item: Item) -> str:
    """The field of an item that holds images; "" where there are none."""
    if isinstance(item, MessageItem):
        return "" if isinstance(item.content, str) else "message.content"
    return "function_call_output.output" if isinstance(item, OutputItem) and not isinstance(item.output, str) else ""


_ITEMS: Final[TypeAdapter[list[Item]]] = TypeAdapter(list[Item])


def items_of(output: Sequence[Mapping[str, Any]]) -> list[Item]:
    """A response's output as items of the next request's input."""
    return _ITEMS.validate_python(output)


class _Text(ContentPart):
    format: dict[str, Any] | None = None

    @field_validator("format")
    @classmethod
    def _known(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is not None and str(value.get("type")) not in FORMATS:
            raise ValueError("its type must be text, json_object or json_schema")
        return value


def _items(value: Any) -> Any:
    return [{"role": "user", "content": value}] if isinstance(value, str) and value else value


class ResponsesBody(ContentPart):
    """Fields of a request that are passed on; others are left out. Features that need a service of their own (stored
    conversations or prompts, background work) are refused, since they can't be left out."""

    input: Annotated[list[Item], BeforeValidator(_items)] = Field(min_length=1, max_length=MAX_MESSAGES)
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    tools: list[ResponseTool] | None = None
    tool_choice: Literal["auto", "none", "required"] | NamedTool | AllowedTools | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: int | None = Field(default=None, gt=0)
    temperature: float | None = Field(default=None, ge=0, le=2)
    text: _Text | None = None
    stream: bool | None = None
    background: bool | None = None
    conversation: Any = None
    prompt: Any = None

    @field_validator("tools")
    @classmethod
    def _names_differ(cls, value: list[ResponseTool] | None) -> list[ResponseTool] | None:
        names_of(value or ())
        return value

    @field_validator("background", "conversation", "prompt")
    @classmethod
    def _not_kept_here(cls, value: Any) -> Any:
        if value:
            raise ValueError("it is not served here; send the whole input, or previous_response_id")
        return value

    def chat(self, before: Sequence[Item]) -> ChatBody:
        """The same request as a chat completion; ``before``: what was said up to the previous response.

        Raises:
            BadCall: it holds nothing that a model could answer, too much, or images, which can't be priced here.
        """
        for at, item in enumerate(self.input):
            if place := _images_at(item):
                why = "It holds something else than text, which can't be priced in advance."
                raise BadCall(why, param=f"input.{at}.{place}")
        return ChatBody.model_validate(self.chat_json(before))

    def chat_json(self, before: Sequence[Item] = ()) -> dict[str, Any]:
        """The same as JSON, without what was not asked for. Raises BadCall: as ``chat``."""
        messages: list[ChatMessage] = []
        for item in (*before, *self.input):
            item.put(messages)
        if not 0 < len(messages) < MAX_MESSAGES:
            raise BadCall(f"input: with what was said before it makes {len(messages):,} messages.", param="input")
        if self.instructions:
            messages.insert(0, {"role": "system", "content": self.instructions})
        found = {
            "messages": messages,
            "tools": [function for tool in self.tools or () for function in tool.functions()] or None,
            "tool_choice": self._choice(),
            "parallel_tool_calls": self.parallel_tool_calls,
            "max_completion_tokens": self.max_output_tokens,
            "temperature": self.temperature,
            "response_format": self._format(),
            "stream": self.stream,
        }
        return {name: value for name, value in found.items() if value is not None}

    def _choice(self) -> str | dict[str, Any] | None:
        return self.tool_choice.chat() if isinstance(self.tool_choice, NamedTool | AllowedTools) else self.tool_choice

    def _format(self) -> dict[str, Any] | None:
        given = dict(self.text.format or {}) if self.text else {}
        match given.pop("type", "text"):
            case "json_schema":
                return {"type": "json_schema", "json_schema": given}
            case "json_object":
                return {"type": "json_object"}
        return None
