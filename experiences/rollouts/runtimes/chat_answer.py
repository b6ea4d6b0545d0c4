"""A completion as OpenAI's chat completions write it: whole, or as the chunks of a stream."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from typing import Any

from budgets.llm.types import Completion, ToolCall


def completion_json(completion: Completion) -> dict[str, Any]:
    """The answer in one piece."""
    message: dict[str, Any] = {"role": "assistant", "content": completion.text or None}
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


def completion_chunks(completion: Completion) -> Iterator[dict[str, Any]]:
    """The answer as a stream: message, end, usage."""
    whole = completion_json(completion)
    base = {name: whole[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    choice = whole["choices"][0]
    delta = dict(choice["message"])
    if calls := delta.get("tool_calls"):
        delta["tool_calls"] = [{"index": at, **call} for at, call in enumerate(calls)]
    yield base | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield base | {"choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    yield base | {"choices": [], "usage": whole["usage"]}


def arguments_of(call: ToolCall) -> str:
    """A call's arguments as JSON, or the text that was none."""
    return call.raw or json.dumps(dict(call.arguments))


def _call_json(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments_of(call)}}
