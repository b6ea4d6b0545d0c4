"""Queries that are conversations: several messages, the last of which is the user's. Pure.

A dataset stores the text (``conversation_text``), which names, splits and searches the query, and beside it the
messages in the row's metadata. An agent of a language model gets the messages one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

SPEAKERS: Final = ("system", "user", "assistant")


@dataclass(frozen=True, slots=True)
class QueryConversation:
    """``system``: the conversation's own system messages as one text. ``before``: (role, text) of what was said until
    ``task``, the user's last message."""

    system: str
    before: tuple[tuple[str, str], ...]
    task: str


def conversation_text(messages: Sequence[Mapping[str, Any]]) -> str:
    """A conversation as one text: of a single message its own, else with the speaker before each."""
    if len(messages) == 1:
        return str(messages[0]["content"])
    return "\n\n".join(f"{str(one['role']).capitalize()}: {one['content']}" for one in messages)


def conversation_of(query: str, metadata: Mapping[str, Any]) -> QueryConversation | None:
    """The messages of a query; None where it is a text. Messages in metadata count only if the query is their text,
    and if each has words of a speaker: calls of tools can't be said again."""
    messages = metadata.get("messages")
    if not isinstance(messages, list) or len(messages) < 2 or not all(map(_is_said, messages)):
        return None
    if messages[-1]["role"] != "user" or conversation_text(messages).strip() != query.strip():
        return None
    said = [(one["role"], one["content"]) for one in messages]
    system = "\n\n".join(text for role, text in said if role == "system")
    return QueryConversation(system, tuple(one for one in said[:-1] if one[0] != "system"), said[-1][1])


def _is_said(message: Any) -> bool:
    if not isinstance(message, Mapping) or message.get("role") not in SPEAKERS:
        return False
    content = message.get("content")
    return isinstance(content, str) and bool(content.strip())
