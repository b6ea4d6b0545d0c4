"""``agent.rl.trajectory.v1`` of an answer in production: one turn, or one for each tool call. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from evaluation.events.payloads.timestamps import seconds_written

MOST_TOOLS: Final = 1_000
COMPLETIONS: Final = {
    1.0: "a whole answer, or a success by the users",
    0.5: "cut at its limit of tokens",
    0.0: "an error",
}


@dataclass(frozen=True, slots=True)
class StoredTrace:
    """A trace's values. ``request`` as the caller sent it, ``response`` as the model's message, both without personal
    data. ``version`` names the release that answered."""

    id: str
    session: str
    agent: str
    request: Mapping[str, Any]
    response: Mapping[str, Any]
    about: Mapping[str, Any]  # what the caller said of the task
    began: float
    duration_ms: float
    succeeded: bool
    error: str
    model: str
    version: str | None
    temperature: float | None
    tokens: int
    cost_micros: int


def trace_payload(row: StoredTrace) -> dict[str, Any]:
    complexity = row.about.get("complexity_score")
    return {
        "trajectory_id": row.id,
        "session_id": row.session or row.id,
        "agent_id": row.agent,
        "subordinate_profile": _text(row.about.get("subordinate_profile"), 60),
        "start_timestamp": seconds_written(row.began),
        "end_timestamp": seconds_written(row.began + row.duration_ms / 1e3),
        "turns": _turns(row),
        "task_context": {
            "task_id": _text(row.about.get("task_id"), 200),
            "instructions": _asked(row.request.get("messages") or ()),
            "complexity_score": complexity if _is_share(complexity) else None,
            "domain": _text(row.about.get("domain"), 60),
        },
        "metadata": {
            "model": row.model,
            "temperature": row.temperature,
            "total_tokens": row.tokens,
            "total_cost_usd": row.cost_micros / 1e6,
            "model_version": row.version,
        },
    }


def _turns(row: StoredTrace) -> list[dict[str, Any]]:
    answer = row.response.get("content")
    calls = [
        one["function"] for one in row.response.get("tool_calls") or () if isinstance(one.get("function"), Mapping)
    ]
    actions = [_tool_call(one) for one in calls] or [
        {"type": "response", "tool_name": None, "tool_args": {}, "raw_response": _words(answer)}
    ]
    reasoning = row.response.get("reasoning")
    thoughts = [reasoning] if isinstance(reasoning, str) and reasoning else []
    thoughts += [_words(answer)] if calls and answer else []
    return [
        {
            "turn_id": number,
            "timestamp": seconds_written(row.began),
            "observation": _observation(row.request) if number == 1 else _nothing_new(),
            "thought_process": thoughts if number == 1 else [],
            "action": action,
            "result": {
                "success": row.succeeded,
                "output": None if calls else answer,
                "error": row.error or None,
                "execution_time_ms": row.duration_ms if number == 1 else None,
            },
        }
        for number, action in enumerate(actions, 1)
    ]


def _tool_call(function: Mapping[str, Any]) -> dict[str, Any]:
    given = function.get("arguments")
    if isinstance(given, str):
        try:
            given = orjson.loads(given)
        except orjson.JSONDecodeError:
            given = {"raw": given}
    arguments = dict(given) if isinstance(given, Mapping) else {}
    name = str(function.get("name") or "")[:200]
    return {"type": "tool_call", "tool_name": name, "tool_args": arguments, "raw_response": None}


def _observation(request: Mapping[str, Any]) -> dict[str, Any]:
    messages = request.get("messages") or ()
    last = messages[-1] if messages else {}
    tools = [one["function"]["name"] for one in request.get("tools") or () if "name" in (one.get("function") or {})]
    return {
        "type": "tool_result" if last.get("role") == "tool" else "user_message",
        "content": last.get("content"),
        "context": {"available_tools": tools[:MOST_TOOLS]} if tools else {},
    }


def _nothing_new() -> dict[str, Any]:
    """Further calls of one answer follow the same observation."""
    return {"type": "tool_result", "content": None, "context": {}}


def _asked(messages: Sequence[Mapping[str, Any]]) -> str:
    return next((_words(one.get("content")) for one in reversed(messages) if one.get("role") == "user"), "")


def _words(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(part["text"]) for part in content if isinstance(part, Mapping) and part.get("text"))
    return content if isinstance(content, str) else ""


def _text(value: Any, most: int) -> str | None:
    return value[:most] if isinstance(value, str) and value else None


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
