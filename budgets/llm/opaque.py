"""Fields of a model's message that only its service understands: signatures, thoughts, details of reasoning.

They come back in the next request as they came, since services refuse a conversation without them (Gemini 3's
``thought_signature``, DeepSeek's and Kimi's ``reasoning_content``). In a stream they come in pieces.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

OWN: Final = frozenset({"role", "content", "tool_calls", "function_call", "index", "audio"})  # audio has another price
OWN_OF_CALL: Final = frozenset({"index", "id", "type", "function", "name", "arguments"})
OWN_OF_FUNCTION: Final = frozenset({"name", "arguments"})
# A text that is whole in each piece; other texts grow.
WHOLE: Final = ("id", "type", "role", "format", "name", "signature", "status", "encrypted_content", "model", "index")
DEPTH: Final = 8  # of values that are merged; deeper ones are replaced


def opaque_of_message(message: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in message.items() if name not in OWN and value is not None}


def opaque_of_call(call: Mapping[str, Any]) -> dict[str, Any]:
    """Fields beside those of every call; those within its function are under ``function``."""
    found = {name: value for name, value in call.items() if name not in OWN_OF_CALL and value is not None}
    function = call.get("function")
    if isinstance(function, Mapping):
        within = {name: value for name, value in function.items() if name not in OWN_OF_FUNCTION and value is not None}
        if within:
            found["function"] = within
    return found


def opaque_shown(opaque: Mapping[str, Any]) -> dict[str, Any]:
    """The fields beside those that every message or call has."""
    return {name: value for name, value in opaque.items() if name not in ("content", "function")}


def weight(value: Any) -> int:
    """Characters of a value, about as many as its JSON has. Iterative, for values of any depth."""
    total, left = 0, [value]
    while left:
        one = left.pop()
        total += 2 + (len(one) if isinstance(one, str) else 0)
        if isinstance(one, Mapping):
            total += sum(map(len, one))
            left += one.values()
        elif isinstance(one, list):
            left += one
    return total


def merge(into: dict[str, Any], piece: Mapping[str, Any], depth: int = 0) -> None:
    """Adds a piece of a streamed value: texts grow, objects are merged, entries of lists by their index and type."""
    for name, value in piece.items():
        if value is None:
            continue
        before = into.get(name)
        if before is None or depth >= DEPTH:
            into[name] = _copied(value) if depth < DEPTH else value
        elif isinstance(before, str) and isinstance(value, str):
            into[name] = value if name.endswith(WHOLE) else before + value
        elif isinstance(before, dict) and isinstance(value, Mapping):
            merge(before, value, depth + 1)
        elif isinstance(before, list) and isinstance(value, list):
            for entry in value:
                _merge_entry(before, entry, depth + 1)
        else:
            into[name] = value


def _merge_entry(into: list[Any], entry: Any, depth: int) -> None:
    last = into[-1] if into else None
    if isinstance(entry, Mapping) and isinstance(last, dict) and last.get("type") == entry.get("type"):
        at, was = entry.get("index"), last.get("index")
        same = entry.get("id") in (None, last.get("id"))
        if same and (at == was if at is not None else was is None and _grows(entry)):
            merge(last, entry, depth)
            return
    into.append(_copied(entry))


def _grows(entry: Mapping[str, Any]) -> bool:
    return any(isinstance(entry.get(name), str | list) for name in ("text", "thinking", "summary", "signature"))


def _copied(value: Any) -> Any:
    """A copy as far down as ``merge`` changes it."""
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, list) else value
