"""The content of a message: a text, or parts of which some are thoughts (Mistral's, Anthropic's)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

THOUGHTS: Final = frozenset({"thinking", "reasoning", "thought", "redacted_thinking", "reasoning_content"})
END: Final = "</think>"
START: Final = "<think>"
DEEP: Final = 4


@dataclass
class Content:
    """``apart``: the content was more than its text, so that it goes back to the service as it came."""

    text: str = ""
    reasoning: str = ""
    notes: list[str] = field(default_factory=list)
    apart: bool = False


def content_in(value: object, *, whole: bool = True) -> Content | None:
    """None: it is no content. ``whole``: not a piece of a stream, so that thoughts before ``</think>`` come off, also
    where the server's template has eaten ``<think>``."""
    if value is None:
        return Content()
    found = Content()
    if isinstance(value, str):
        found.text = value
    elif isinstance(value, list | Mapping):
        parts = value if isinstance(value, list) else [value]
        if isinstance(value, Mapping) and not isinstance(value.get("text"), str):
            return None
        for part in parts:
            _add(found, part)
    else:
        return None
    if whole and END in found.text:
        thoughts, _, text = found.text.partition(END)
        opening, start, inner = thoughts.rpartition(START)
        if not opening.strip():
            found.text, found.reasoning, found.apart = text.lstrip(), inner if start else thoughts, True
    return found


def _add(found: Content, part: Any) -> None:
    if isinstance(part, str):
        found.text += part
        return
    if isinstance(part, Mapping):
        if str(part.get("type")) in THOUGHTS:
            found.apart = True
            found.reasoning += _words(part)
            return
        if isinstance(text := part.get("text"), str):
            found.text += text
            found.apart = found.apart or len(part.keys() - {"type", "text", "index"}) > 0
            return
    found.apart = True
    found.notes.append("a part of content is no text")


def _words(value: Any, depth: int = 0) -> str:
    """The texts within a thought, in order."""
    if isinstance(value, str):
        return value
    if depth >= DEEP:
        return ""
    if isinstance(value, list):
        return "".join(_words(one, depth + 1) for one in value)
    if isinstance(value, Mapping):
        names = ("thinking", "text", "reasoning", "summary", "content")
        return next((_words(value[name], depth + 1) for name in names if value.get(name)), "")
    return ""
