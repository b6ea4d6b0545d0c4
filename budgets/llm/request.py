"""A call as bytes, and the bound of its prompt's tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Unpack

from budgets.llm import tokens
from budgets.llm.fitting import fitted, messages_fitted
from budgets.llm.halves import all_paired, clean
from budgets.llm.images import image_of
from budgets.llm.opaque import opaque_shown
from budgets.llm.types import OURS, Endpoint, Message, RequestOptions, ToolCall, ToolSpec

CAPTURE: Final[Mapping[str, Any]] = {"logprobs": True, "return_token_ids": True}  # vLLM and SGLang return their tokens

# Options that may instruct the model, so that they count as prompt.
OF_THE_PROMPT: Final[tuple[Literal["response_format", "tool_choice", "parallel_tool_calls"], ...]] = (
    "response_format",
    "tool_choice",
    "parallel_tool_calls",
)
SETTINGS: Final[tuple[Literal["temperature", "seed", "stop"], ...]] = ("temperature", "seed", "stop")  # they do not
TOOL_LISTS: Final = ("tools", "functions")


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """``body`` is sent in each attempt as it is. ``prompt`` is the part of it that is counted as the prompt, without
    the addresses of its ``images``, which are counted by themselves; ``prompt_tokens`` is the upper bound of both."""

    body: bytes
    prompt: str
    prompt_tokens: int
    max_tokens: int
    stream: bool
    images: int = 0


def encode(
    endpoint: Endpoint,
    messages: Sequence[Message],
    *,
    max_tokens: int,
    stream: bool,
    **options: Unpack[RequestOptions],
) -> ModelRequest:
    """Raises ValueError for no messages, for ``max_tokens`` below 1 and for what is no JSON (NaN, sets …).

    ``max_tokens`` is always sent: without it the cost of a call has no bound.
    """
    if not messages:
        raise ValueError("A call needs at least one message.")
    if max_tokens < 1:
        raise ValueError("max_tokens must be at least 1.")
    fields: dict[str, Any] = {name: options.get(name) for name in (*OF_THE_PROMPT, *SETTINGS)}
    if tools := options.get("tools"):
        fields["tools"] = [_tool(tool) for tool in tools]
    fields["stop"] = list(fields["stop"] or ()) or None
    said = [_message(message) for message in messages]
    return written(endpoint, said, fields, length={"max_tokens": max_tokens}, stream=stream)


def written(
    endpoint: Endpoint,
    messages: Sequence[Mapping[str, Any]],
    fields: Mapping[str, Any],
    *,
    length: Mapping[str, int],
    stream: bool,
) -> ModelRequest:
    """The request of a job, or of a caller of the gateway: equal fields give equal bytes.

    ``fields`` are optional ones, without None; ``length`` is the bound of the answer by the caller's name for it."""
    messages = messages_fitted(endpoint, messages)
    [(length_field, max_tokens)] = length.items()
    ours: dict[str, Any] = {"model": endpoint.model, endpoint.max_tokens_field or length_field: max_tokens}
    ours |= {name: fields[name] for name in SETTINGS if fields.get(name) is not None}
    if stream:
        ours |= {"stream": True, "stream_options": {**(fields.get("stream_options") or {}), "include_usage": True}}
    elif endpoint.capture_tokens:
        ours |= CAPTURE
    if endpoint.kind == "openrouter":
        ours["usage"] = {"include": True}  # without it there is no usage.cost
    taken = {*ours, *OURS} - {"tools"}
    asked = {n: fields[n] for n in ("tools", *OF_THE_PROMPT, *fields) if fields.get(n) is not None and n not in taken}
    # ``extra`` may instruct the model too (a tool choice, a template's variables): all of it counts as prompt.
    # What is said here wins: a name in both would be in the body twice.
    extra = {name: value for name, value in endpoint.extra.items() if name not in ours and name not in asked}
    prompt, ours = dumped(fitted(endpoint, {**extra, "messages": messages, **asked})), fitted(endpoint, ours)
    images = sum(image_of(part) is not None for one in messages for part in _parts(one))
    counted = prompt
    if images:
        counted = dumped(fitted(endpoint, {**extra, "messages": _without_addresses(messages), **asked}))
    return ModelRequest(
        body=f"{prompt[:-1]},{dumped(ours)[1:]}".encode(),
        prompt=counted,
        prompt_tokens=tokens.prompt_bound(
            counted,
            messages=len(messages),
            tools=sum(len(asked.get(name) or ()) for name in TOOL_LISTS),
            overhead=endpoint.prompt_overhead + tokens.IMAGE_BOUND * images,
        ),
        max_tokens=max_tokens,
        stream=stream,
        images=images,
    )


def _parts(message: Mapping[str, Any]) -> list[Any]:
    content = message.get("content")
    return content if isinstance(content, list) else []


def _without_addresses(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    empty = {"type": "image_url", "image_url": {"url": ""}}
    return [
        {**one, "content": [part if image_of(part) is None else empty for part in parts]}
        if (parts := _parts(one))
        else one
        for one in messages
    ]


def _message(message: Message) -> dict[str, Any]:
    sent: dict[str, Any] = {"role": message.role, "content": clean(message.content)}
    if message.name:
        sent["name"] = message.name
    if message.tool_call_id:
        sent["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        sent["content"] = sent["content"] or None
        sent["tool_calls"] = [
            {"id": call.id, "type": "function"}
            | opaque_shown(call.opaque)
            | {"function": {"name": call.name, "arguments": _arguments(call)} | dict(call.opaque.get("function", {}))}
            for call in message.tool_calls
        ]
    # The service's own fields, as they came; its content, where that is more than the text.
    return sent | all_paired(dict(message.opaque))


def _arguments(call: ToolCall) -> str:
    """The arguments as they came; those that are no object are within one: services refuse a conversation with them."""
    if call.arguments_error:
        return json.dumps({"unreadable": call.raw})
    return call.raw or json.dumps(dict(call.arguments))


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def dumped(value: object) -> str:
    """Compact JSON with its characters as they are: what the bound counts is what the model reads."""
    text = _ENCODER.encode(value)
    return text if text.isascii() else clean(text)
