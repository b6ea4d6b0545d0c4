"""Telemetry of coding agents by its documented names: Claude Code, Codex, Gemini CLI. Pure, no Django.

They send events of the log without a trace. All events of one prompt (of Codex: of one conversation) are one trace
here, whose root is the prompt. Words are in them only where a person switched that on (``OTEL_LOG_USER_PROMPTS``,
``OTEL_LOG_ASSISTANT_RESPONSES``, ``OTEL_LOG_RAW_API_BODIES``, ``log_user_prompt``, ``logPrompts``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from evaluation.events.otlp.conventions import LOGGED
from evaluation.events.otlp.dialects import AGENT, MODEL, TOOL, number
from evaluation.events.otlp.messages import parsed
from evaluation.events.otlp.spans import OtlpSpan, span_of

PREFIXES: Final = ("claude_code.", "codex.", "gemini_cli.")
ANSWER: Final = "answer"  # the words of a call of a model, which another event counts and prices
REJECTED: Final = "claude_code.tool_decision"
EVENTS: Final = {
    "claude_code.user_prompt": AGENT,
    "claude_code.api_request": MODEL,
    "claude_code.api_error": MODEL,
    "claude_code.assistant_response": ANSWER,
    "claude_code.api_response_body": ANSWER,
    "claude_code.tool_result": TOOL,
    REJECTED: TOOL,
    "codex.user_prompt": AGENT,
    "codex.sse_event": MODEL,
    "codex.websocket_event": MODEL,
    "codex.tool_result": TOOL,
    "gemini_cli.user_prompt": AGENT,
    "gemini_cli.api_response": MODEL,
    "gemini_cli.api_error": MODEL,
    "gemini_cli.tool_call": TOOL,
}
KIND: Final = "event.kind"  # of Codex's stream: only the last event of an answer has its tokens, or its error
LAST: Final = ("response.completed", "response.failed", "response.incomplete")
SESSIONS: Final = ("conversation.id", "session.id", "conversation_id", "session_id")
PROMPTS: Final = ("prompt.id", "prompt_id")
WITHHELD: Final = "<REDACTED>"
MILLISECOND: Final = 1_000_000  # in nanoseconds


def span_of_event(name: str, about: Mapping[str, Any], *, id: str, at: int) -> OtlpSpan | None:
    """None: the event says nothing of a prompt, a call of a model or of a tool."""
    kind, session = EVENTS.get(name), _first(about, *SESSIONS)
    if kind is None or session is None or about.get(KIND, LAST[0]) not in LAST:
        return None
    if name == REJECTED and about.get("decision") != "reject":
        return None  # the tool runs, and has a result
    trace = _digest(name.partition(".")[0], str(session), str(_first(about, *PROMPTS) or ""))
    root, call = kind == AGENT, _call_id(trace, about)
    if kind == ANSWER:
        return _answered(name, about, trace=trace[:32], id=id, call=call, at=at)
    took = max(0, number(about.get("duration_ms")) or 0) * MILLISECOND
    return span_of(
        trace=trace[:32],
        id=call or id if kind == MODEL else id,
        parent="" if root else trace[32:48],
        began=at if root else max(1, at - took),
        ended=at,
        name=name,
        error=_error(about),
        attributes={"gen_ai.operation.name": kind, "gen_ai.conversation.id": str(session), **READS[kind](about)},
    )


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _call_id(trace: str, about: Mapping[str, Any]) -> str:
    """The id of the span of a call of a model, by which its words find it; "" where its events name no request."""
    request = about.get("request_id")
    return _digest(trace, str(request))[:16] if request else ""


def _answered(name: str, about: Mapping[str, Any], *, trace: str, id: str, call: str, at: int) -> OtlpSpan | None:
    """The words of a call: its text, or the body of its answer, of which nothing is read where it was cut. None: they
    are withheld, or name no request."""
    body = parsed(about.get("body"))
    text = about.get("response")
    message = body if isinstance(body, dict) else {"content": text} if text and text != WITHHELD else None
    if message is None or not call:
        return None
    messages = [{"role": "assistant", "content": message.get("content")}]
    attributes = {LOGGED: name, "gen_ai.output.messages": messages}
    return span_of(trace=trace, id=id, parent=call, began=at, ended=at, name=name, error="", attributes=attributes)


def _error(about: Mapping[str, Any]) -> str:
    failed = str(about.get("success", "true")).lower() == "false"
    said = _first(about, "error", "error.message", "error_message", *(["error_type"] if failed else []))
    if about.get("decision") == "reject":
        said = about.get("source") or "rejected"
    return str(said or ("error" if failed else ""))


def _prompt(about: Mapping[str, Any]) -> dict[str, Any]:
    text = about.get("prompt") or f"[a prompt of {about.get('prompt_length', 'unknown')} characters]"
    return {"gen_ai.input.messages": [{"role": "user", "content": str(text)}]}


def _call(about: Mapping[str, Any]) -> dict[str, Any]:
    """Anthropic counts reads and writes of the cache beside the input; Gemini counts thoughts beside the output."""
    read, written = number(about.get("cache_read_tokens")) or 0, number(about.get("cache_creation_tokens")) or 0
    return {
        "gen_ai.request.model": about.get("model"),
        "gen_ai.response.id": _first(about, "request_id", "response_id"),
        "gen_ai.usage.input_tokens": (number(_first(about, "input_tokens", "input_token_count")) or 0) + read + written,
        "gen_ai.usage.output_tokens": (number(_first(about, "output_tokens", "output_token_count")) or 0)
        + (number(about.get("thoughts_token_count")) or 0),
        "gen_ai.usage.cache_read.input_tokens": read
        or number(_first(about, "cached_token_count", "cached_content_token_count")),
        "gen_ai.usage.cache_creation.input_tokens": written,
        "gen_ai.usage.cost": _dollars(about.get("cost_usd")),
        "gen_ai.output.messages": _gemini_answer(_first(about, "response_text")),
    }


def _gemini_answer(text: Any) -> list[dict[str, Any]] | None:
    """Gemini CLI writes the answer as JSON: whole, or a list of the pieces of its stream."""
    found = parsed(text)
    pieces = found if isinstance(found, list) else [found]
    if not all(isinstance(one, dict) and "candidates" in one for one in pieces):
        return [{"role": "assistant", "content": str(text)}] if text else None
    candidates = [next(iter(one["candidates"] or ()), None) for one in pieces]
    contents = [one.get("content") for one in candidates if isinstance(one, dict)]
    parts = [part for one in contents if isinstance(one, dict) for part in one.get("parts") or ()]
    said = [part for part in parts if isinstance(part, dict) and not part.get("thought")]
    text = "".join(part["text"] for part in said if isinstance(part.get("text"), str))
    return [{"role": "model", "parts": [{"text": text}, *(part for part in said if "functionCall" in part)]}]


def _tool(about: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "gen_ai.tool.name": _first(about, "tool_name", "function_name", "name"),
        "gen_ai.tool.call.id": _first(about, "tool_use_id", "call_id"),
        "gen_ai.tool.call.arguments": _first(about, "tool_input", "tool_parameters", "arguments", "function_args"),
        "gen_ai.tool.call.result": _first(about, "output", "tool_output"),
    }


def _dollars(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _first(about: Mapping[str, Any], *names: str) -> Any:
    return next((about[name] for name in names if about.get(name) not in (None, "")), None)


READS: Final = {AGENT: _prompt, MODEL: _call, TOOL: _tool}
