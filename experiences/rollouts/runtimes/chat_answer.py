"""A completion as OpenAI's chat completions write it: whole, or piece by piece as a stream."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Mapping
from typing import Any

from budgets.llm.opaque import opaque_shown
from budgets.llm.types import Completion, ToolCall


def completion_json(completion: Completion) -> dict[str, Any]:
    """``completion`` in one piece, with the fields that its service wants back."""
    message: dict[str, Any] = {"role": "assistant", "content": completion.text or None}
    message |= opaque_shown(completion.opaque)
    if completion.tool_calls:
        message["tool_calls"] = [_call_json(call) for call in completion.tool_calls]
    usage = completion.usage
    return {
        "id": completion.request_id or f"chatcmpl-{secrets.token_hex(8)}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": completion.model,
        "choices": [{"index": 0, "message": message, "finish_reason": completion.finish_reason or "stop"}],
        "usage": {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.total_tokens,
        },
    }


class ChatStream:
    """The events of a streamed answer of ``model``: its pieces as they come, then calls of tools, end and usage."""

    def __init__(self, model: str) -> None:
        self._base = {
            "id": f"chatcmpl-{secrets.token_hex(8)}",
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": model,
        }
        self._streamed = False

    def begin(self) -> Iterator[dict[str, Any]]:
        yield self._chunk({"role": "assistant", "content": ""})

    def piece(self, text: str) -> Iterator[dict[str, Any]]:
        self._streamed = True
        yield self._chunk({"content": text})

    def end(self, completion: Completion) -> Iterator[dict[str, Any]]:
        whole = completion_json(completion)
        choice = whole["choices"][0]
        if completion.text and not self._streamed:  # a model that sends its whole answer at once
            yield from self.piece(completion.text)
        if opaque := opaque_shown(completion.opaque):
            yield self._chunk(opaque)
        for at, call in enumerate(choice["message"].get("tool_calls", [])):
            yield self._chunk({"tool_calls": [{"index": at, **call}]})
        yield self._chunk({}, choice["finish_reason"])
        yield self._base | {"choices": [], "usage": whole["usage"]}

    def failed(self, error: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """A failure after the beginning, as OpenAI's error body."""
        yield dict(error)

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        return self._base | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}


def arguments_of(call: ToolCall) -> str:
    """A call's arguments as JSON, or the text that was none."""
    return call.raw or json.dumps(dict(call.arguments))


def _call_json(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": arguments_of(call), **call.opaque.get("function", {})}
    return {"id": call.id, "type": "function", **opaque_shown(call.opaque), "function": function}
