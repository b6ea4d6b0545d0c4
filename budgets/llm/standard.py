"""A whole answer in OpenAI's form, for callers that know no other: arguments are texts, thoughts lie apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from budgets.llm.content import content_in
from budgets.llm.finish import NAMES, ends, finish_of, reason_in
from budgets.llm.halves import clean
from budgets.llm.wire import arguments_read, dumped_json, function_in


def standard_body(body: bytes, value: Any, *, strict: bool) -> bytes:
    """``body``, or what has to be passed on in its place. ``value`` is the body parsed; ``strict``: it is JSON as it
    is written. Raises Malformed."""
    choices = [_choice(choice) for choice in value.get("choices") or ()]
    if strict and all(new is old for new, old in zip(choices, value.get("choices") or (), strict=True)):
        return body
    return dumped_json({**value, "choices": choices})


def _choice(choice: Any) -> Any:
    if isinstance(choice, Mapping) and (reason := reason_in(choice)) not in (None, *NAMES) and ends(reason):
        choice = {**choice, "finish_reason": finish_of(reason)}
    message = choice.get("message") if isinstance(choice, Mapping) else None
    if not isinstance(message, Mapping):
        if not isinstance(choice, Mapping) or not isinstance(choice.get("text"), str):
            return choice
        beside = {name: value for name, value in choice.items() if name != "text"}
        return {**beside, "message": {"role": "assistant", "content": choice["text"]}}
    changed: dict[str, Any] = {}
    given = message.get("content")
    if isinstance(given, list | Mapping) and (content := content_in(given, whole=False)) is not None:
        changed["content"] = clean(content.text)
        if content.reasoning:
            changed["reasoning_content"] = clean(content.reasoning)
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        calls = [call for call in calls if isinstance(call, Mapping)]
        listed = [_call(at, call) for at, call in enumerate(calls)]
        if len(calls) < len(message["tool_calls"]) or any(
            new is not old for new, old in zip(listed, calls, strict=True)
        ):
            changed["tool_calls"] = listed
    elif calls is not None:
        changed["tool_calls"] = [_call(0, calls)] if isinstance(calls, Mapping) else None
    return {**choice, "message": {**message, **changed}} if changed else choice


def _call(at: int, call: Any) -> Any:
    function = function_in(call)
    if function is None:
        return call
    given = function.get("arguments")
    text = arguments_read(given)[1]
    as_given = isinstance(given, str) and (text == given or not given.strip())
    if as_given and function is call.get("function") and isinstance(call.get("id"), str) and call["id"]:
        return call
    beside = {name: value for name, value in call.items() if name not in ("name", "arguments")}
    identity = call["id"] if isinstance(call.get("id"), str) and call["id"] else f"call_{at}"
    within = {**function, "arguments": given if as_given else text or "{}"}
    if function is call:
        within = {"name": function.get("name"), "arguments": within["arguments"]}
    return {**beside, "id": identity, "type": "function", "function": within}
