"""The stored content of a call, without personal data. Pure, no Django."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from budgets.llm.images import INLINE, image_of
from budgets.llm.opaque import opaque_shown
from budgets.llm.stream import THOUGHTS
from budgets.llm.types import Completion
from experiences.privacy import cut_short, redact, redact_value, redact_with_counts

MOST_KEPT: Final = 256 * 1024  # bytes of a conversation
MOST_ADDRESS: Final = 300  # characters of an image's address
LONG: Final = 8 * 1024  # bytes of a conversation
LEFT_OUT: Final = ("model", "user", "metadata")  # of a request: they have columns of their own


def session_name(session: str) -> str:
    """The stored name of a session: the caller's, or its digest if the name would identify a person."""
    plain = session if session.isprintable() and len(session) <= 100 else ""
    if plain and redact(plain) == plain:
        return plain
    return hashlib.blake2b(session.encode("utf-8", "replace"), digest_size=16).hexdigest() if session else ""


@dataclass(frozen=True, slots=True)
class KeptContent:
    """A request and its answer as they are stored.

    ``safety``: how many findings the answer has, which are personal data of a kind that the query did not hold; null
    where there is no answer. ``whole``: all words are kept, so that the tokens may be, too.
    """

    request: dict[str, Any]
    response: Any
    safety: int | None
    whole: bool


def is_long(body: Mapping[str, Any], answer: Any) -> bool:
    """Whether redacting this conversation takes milliseconds, which an event loop has not."""
    said = [answer.get("content"), answer.get("agentcore_steps")] if answer else []
    return sum(len(orjson.dumps(one)) for one in (*body["messages"], *said)) > LONG


def kept(body: Mapping[str, Any], query: str, answer: Any) -> KeptContent:
    given = {name: value for name, value in body.items() if name not in LEFT_OUT}
    given["messages"] = _short([_without_images(message) for message in body["messages"]])
    asked, response = redact_value(given), redact_value(answer)
    whole = asked is given and response is answer and len(given["messages"]) == len(body["messages"])
    if not response:
        return KeptContent(asked, response, None, whole)
    text = str(answer.get("content") or "")
    found = redact_with_counts(text).counts if response != answer else {}
    known = redact_with_counts(query).counts if found else {}
    return KeptContent(asked, response, sum(1 for one in found if one not in known), whole)


def _short(messages: Sequence[Any]) -> list[Any]:
    """The last messages, as many as a trace keeps."""
    found: list[Any] = []
    size = 0
    for message in reversed(messages):
        size += len(orjson.dumps(message))
        if size > MOST_KEPT:
            left_out = f"[{len(messages) - len(found)} earlier messages are not kept]"
            found.append({"role": "system", "content": left_out})
            break
        found.append(message)
    return found[::-1]


def _without_images(message: Any) -> Any:
    content = message.get("content")
    if not isinstance(content, list):
        return message
    shown = [(one, image_of(one)) for one in content]
    parts = [one if url is None else {"type": "text", "text": _address(url)} for one, url in shown]
    return {**message, "content": parts}


def _address(url: str) -> str:
    return "[image]" if url.startswith(INLINE) else f"[image {cut_short(url, MOST_ADDRESS)}]"


def answered(completion: Completion) -> dict[str, Any]:
    """Columns of a trace, of the answer of a model."""
    message: dict[str, Any] = {"role": "assistant", "content": completion.text}
    message |= {name: one for name, one in opaque_shown(completion.opaque).items() if name not in THOUGHTS}
    if completion.reasoning:
        message["reasoning"] = completion.reasoning
    if completion.tool_calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                **opaque_shown(call.opaque),
                "function": {
                    "name": call.name,
                    "arguments": dict(call.arguments) or call.raw,
                    **call.opaque.get("function", {}),
                },
            }
            for call in completion.tool_calls
        ]
    usage = completion.usage
    return {
        "response": message,
        "finish_reason": completion.finish_reason[:40],
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "attempts": completion.attempts,
    }
