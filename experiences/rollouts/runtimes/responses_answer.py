"""A completion as OpenAI's Responses API writes it: whole, or as the events of a stream."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from typing import Any, Final

from budgets.llm.types import Completion, ToolCall
from experiences.rollouts.runtimes.chat_answer import arguments_of
from experiences.rollouts.runtimes.responses_body import ResponsesBody

CUT: Final = {"length": "max_output_tokens", "content_filter": "content_filter"}


def response_json(asked: ResponsesBody, completion: Completion) -> dict[str, Any]:
    """The answer in one piece, beside what was asked for."""
    cut, usage = CUT.get(completion.finish_reason), completion.usage
    state = "incomplete" if cut else "completed"
    given = asked.model_dump(mode="json", include={"text", "tool_choice", "tools"}, exclude_none=True)
    return {
        "id": f"resp_{secrets.token_hex(16)}",
        "object": "response",
        "created_at": int(time.time()),
        "status": state,
        "background": False,
        "error": None,
        "incomplete_details": {"reason": cut} if cut else None,
        "instructions": asked.instructions,
        "max_output_tokens": asked.max_output_tokens,
        "model": completion.model,
        "output": [*_message(completion.text, state), *map(_call, completion.tool_calls)],
        "parallel_tool_calls": asked.parallel_tool_calls is not False,
        "previous_response_id": asked.previous_response_id,
        "store": asked.store is not False,
        "temperature": asked.temperature,
        "text": given.get("text") or {"format": {"type": "text"}},
        "tool_choice": given.get("tool_choice", "auto"),
        "tools": given.get("tools", []),
        "truncation": "disabled",
        "usage": {
            "input_tokens": usage.input_tokens,
            "input_tokens_details": {"cached_tokens": usage.cached_tokens},
            "output_tokens": usage.output_tokens,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
            "total_tokens": usage.total_tokens,
        },
        "metadata": {},
    }


def response_events(whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The same answer as a stream, its events numbered."""
    for number, event in enumerate(_events(whole)):
        yield event | {"type": f"response.{event['type']}", "sequence_number": number}


def _events(whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    begun = whole | {"status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    yield {"type": "created", "response": begun}
    yield {"type": "in_progress", "response": begun}
    for index, item in enumerate(whole["output"]):
        place = {"output_index": index}
        empty: dict[str, Any] = {"content": []} if item["type"] == "message" else {"arguments": ""}
        yield {"type": "output_item.added", **place, "item": item | empty | {"status": "in_progress"}}
        yield from (event | place | {"item_id": item["id"]} for event in _parts(item))
        yield {"type": "output_item.done", **place, "item": item}
    yield {"type": whole["status"], "response": whole}


def _parts(item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What comes between an item's beginning and its end."""
    if item["type"] == "function_call":
        yield {"type": "function_call_arguments.delta", "delta": item["arguments"]}
        yield {"type": "function_call_arguments.done", "arguments": item["arguments"], "name": item["name"]}
        return
    for index, part in enumerate(item["content"]):
        place = {"content_index": index}
        yield {"type": "content_part.added", **place, "part": part | {"text": ""}}
        yield {"type": "output_text.delta", **place, "delta": part["text"], "logprobs": []}
        yield {"type": "output_text.done", **place, "text": part["text"], "logprobs": []}
        yield {"type": "content_part.done", **place, "part": part}


def _message(text: str, state: str) -> list[dict[str, Any]]:
    if not text:
        return []
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return [
        {"id": _id("msg"), "type": "message", "role": "assistant", "status": state, "content": [part]},
    ]


def _call(call: ToolCall) -> dict[str, Any]:
    return {
        "id": _id("fc"),
        "type": "function_call",
        "call_id": call.id or _id("call"),
        "name": call.name,
        "arguments": arguments_of(call),
        "status": "completed",
    }


def _id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(12)}"
