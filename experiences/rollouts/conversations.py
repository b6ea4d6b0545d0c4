"""Queries that are conversations: messages, the last of which is the user's. Pure.

A dataset stores the text (``conversation_text``), which names, splits and searches the query, and beside it the
messages in the row's metadata. An agent of a language model gets the messages one by one, images among them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from budgets.llm.images import INLINE, image_of

SPEAKERS: Final = ("system", "user", "assistant")
MOST_IMAGES: Final = 20  # of a query
MOST_ADDRESS: Final = 2_000  # characters
MOST_INLINE: Final = 4 * 2**20  # characters of a data: URL, about 3 MB of an image
FORMATS: Final = ("png", "jpeg", "jpg", "gif", "webp")  # that services take

# A content is a text, or parts of a chat completion: texts and images, of which one at least is an image.
Content = str | list[dict[str, Any]]

_ADDRESS: Final = re.compile(r"https?://[^\s/?#@\\]+(?:[/?#]\S*)?", re.IGNORECASE)
_DATA: Final = re.compile(rf"data:image/(?:{'|'.join(FORMATS)});base64,([A-Za-z0-9+/]+={{0,2}})")


@dataclass(frozen=True, slots=True)
class QueryConversation:
    """``system``: the conversation's own system messages as one text. ``before``: (role, content) of what was said
    until ``task``, the user's last message."""

    system: str
    before: tuple[tuple[str, Content], ...]
    task: Content


def content_shown(content: Any) -> str:
    """A content as text: of an image its address, of one that is inline its kind, size and digest."""
    if not isinstance(content, list):
        return str(content or "")
    shown = (str(part.get("text") or "") if (url := image_of(part)) is None else _shown(url) for part in content)
    return "\n".join(text for text in shown if text)


def content_words(content: Content) -> str:
    """The texts of a content, without its images."""
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text") or "") for part in content if image_of(part) is None)


def images_in(messages: Any) -> Iterator[str]:
    """The addresses of all images in messages."""
    for one in messages if isinstance(messages, list) else ():
        content = one.get("content") if isinstance(one, Mapping) else None
        for part in content if isinstance(content, list) else ():
            if (url := image_of(part)) is not None:
                yield url


def images_of(query: str, metadata: Mapping[str, Any]) -> list[str]:
    """The addresses of the images that an agent gets with a query."""
    return [] if conversation_of(query, metadata) is None else list(images_in(metadata["messages"]))


def conversation_text(messages: Sequence[Mapping[str, Any]]) -> str:
    """A conversation as one text: of a single message its own, else with the speaker before each."""
    if len(messages) == 1:
        return content_shown(messages[0]["content"])
    return "\n\n".join(f"{str(one['role']).capitalize()}: {content_shown(one['content'])}" for one in messages)


def conversation_of(query: str, metadata: Mapping[str, Any]) -> QueryConversation | None:
    """The messages of a query; None where it is a text. Messages in metadata count only if the query is their text,
    and if each has words or an image of a speaker: calls of tools can't be said again."""
    messages = metadata.get("messages")
    if not isinstance(messages, list) or not messages or not all(map(_is_said, messages)):
        return None
    if len(messages) == 1 and isinstance(messages[0]["content"], str):
        return None
    if messages[-1]["role"] != "user" or conversation_text(messages).strip() != query.strip():
        return None
    said = [(one["role"], _ordered(one["content"])) for one in messages]
    system = "\n\n".join(content_words(content) for role, content in said if role == "system")
    return QueryConversation(system, tuple(one for one in said[:-1] if one[0] != "system"), said[-1][1])


def _ordered(content: Content) -> Content:
    """A content with the fields of its parts in the order of the API's reference: a database sorts them otherwise."""
    if isinstance(content, str):
        return content
    parts = [{name: part[name] for name in ("type", "text", "image_url") if name in part} | part for part in content]
    for part in parts:
        if "image_url" in part:
            part["image_url"] = {"url": part["image_url"]["url"]} | part["image_url"]
    return parts


def images_fault(query: str, messages: Any) -> str:
    """The reason why no model can be asked with the images of a conversation, as a sentence; "" without one."""
    found = list(images_in(messages))
    if not found:
        return ""
    if len(found) > MOST_IMAGES:
        return f"it has {len(found)} images; {MOST_IMAGES} is the most."
    if any(one.get("role") != "user" for one in messages if any(images_in([one]))):
        return "an image is in a message that is not the user's; services take images of the user only."
    if messages[-1].get("role") != "user":
        return "its images can't be asked: its last message is not the user's."
    if conversation_of(query, {"messages": messages}) is None:
        return "its images can't be asked: a turn is a call of a tool or has no words."
    return next((fault for url in found if (fault := image_fault(url))), "")


def image_fault(url: str) -> str:
    """The reason why an address can't be that of an image, as a sentence; "" without one."""
    if url.startswith(INLINE):
        if len(url) > MOST_INLINE:
            return f"an image has {len(url):,} characters as data: URL; {MOST_INLINE:,} is the most. Make it smaller."
        if not (found := _DATA.fullmatch(url)) or len(found[1]) % 4:
            return f"an image's data: URL is data:image/<{', '.join(FORMATS)}>;base64,… without spaces."
        return ""
    if len(url) > MOST_ADDRESS:
        return f"an image's address has {len(url):,} characters; {MOST_ADDRESS:,} is the most."
    if not _ADDRESS.fullmatch(url):
        forms = "http://…, https://… or data:image/…, without spaces or a password"
        return f"an image's address is {forms}; got {url[:60]!r}."
    return ""


def _shown(url: str) -> str:
    if not url.startswith(INLINE):
        return f"Image: {url}"
    kind, _, data = url.partition(",")
    digest = hashlib.sha256(url.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"Image: {kind[:60]}, {len(data):,} characters, sha256 {digest}"


def _is_said(message: Any) -> bool:
    if not isinstance(message, Mapping) or message.get("role") not in SPEAKERS:
        return False
    content = message.get("content")
    if isinstance(content, list):
        return message["role"] == "user" and any(images_in([message])) and all(map(_is_part, content))
    return isinstance(content, str) and bool(content.strip())


def _is_part(part: Any) -> bool:
    if not isinstance(part, Mapping):
        return False
    return image_of(part) is not None or (part.get("type") == "text" and isinstance(part.get("text"), str))
