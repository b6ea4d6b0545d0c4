"""The body of a chat completion: checked as far as costs and arms depend on it. Pure, no Django.

Its listed fields pass unchanged (``passed_fields``). A request whose cost has no upper bound is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from budgets.llm.content import THOUGHTS
from budgets.llm.images import INLINE
from budgets.llm.request import TOOL_LISTS, ModelRequest, written
from budgets.llm.types import DEARER, Endpoint
from evaluation.serving.gateway.passed_fields import NOTHING, fields_passed
from experiences.rollouts.runtimes.chat_body import MAX_MESSAGES, BadCall, loaded
from experiences.rollouts.runtimes.responses_body import ShownResults

MOST_TOKENS: Final = 4_096  # of an answer, if neither the caller nor the release sets a limit
ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
LENGTHS: Final = ("max_completion_tokens", "max_tokens")
MOST_METADATA: Final = 16


@dataclass(frozen=True)
class ChatRequest:
    """``body`` is the caller's request; the other fields are parsed from it."""

    body: Mapping[str, Any]
    model: str
    stream: bool
    wants_usage: bool
    limit: int | None
    limit_field: str  # the caller's name for it
    images: tuple[str, ...]  # their URLs, which may contain whole images

    @property
    def fetched_images(self) -> list[str]:
        """Addresses of images that the model's service would fetch."""
        return [url for url in self.images if not url.startswith(INLINE)]

    @property
    def query(self) -> str:
        """The text of the user's last message."""
        for message in reversed(self.body["messages"]):
            if message["role"] == "user" and not isinstance(message, ShownResults):
                return _text(message.get("content"))
        return ""

    @property
    def user(self) -> str:
        found = self.body.get("user")
        return found if isinstance(found, str) else ""

    @property
    def temperature(self) -> float | None:
        found = self.body.get("temperature")
        return float(found) if isinstance(found, int | float) else None

    @property
    def seed(self) -> int | None:
        found = self.body.get("seed")
        return found if isinstance(found, int) and not isinstance(found, bool) else None

    @property
    def metadata(self) -> dict[str, str]:
        found = self.body.get("metadata")
        given = found.items() if isinstance(found, Mapping) else ()
        return {str(name)[:60]: str(value)[:500] for name, value in list(given)[:MOST_METADATA]}

    def left_out(self, endpoints: Iterable[Endpoint]) -> list[str]:
        """The caller's fields that do not reach these endpoints, whose services refuse them."""
        refused = {name for endpoint in endpoints for name in endpoint.leave_out}
        return sorted(refused.intersection(name for name, value in self.body.items() if value is not None))

    def for_model(self, endpoint: Endpoint, system: str, limit: int, temperature: float | None = None) -> ModelRequest:
        """The request to ``endpoint``: ``system`` before all messages, and at most ``limit`` tokens of an answer.
        ``temperature`` is for a caller who sends none."""
        given = fields_passed(self.body, endpoint)
        if given.get("temperature") is None:
            given["temperature"] = temperature
        said = given.pop("messages")
        length = min(self.limit or limit or MOST_TOKENS, limit or self.limit or MOST_TOKENS)
        return written(
            endpoint,
            [{"role": "system", "content": system}, *said] if system else said,
            {name: value for name, value in given.items() if name not in OURS_ALONE},
            length={self.limit_field: length},
            stream=self.stream,
        )


OURS_ALONE: Final = frozenset({"user", "metadata"})


def object_in(read: bytes) -> dict[str, Any]:
    """The JSON object of a body. Raises BadCall."""
    try:
        body = loaded(read)
    except ValueError as error:
        raise BadCall(f"The body is not valid JSON: {error}.") from None
    if not isinstance(body, dict):
        raise BadCall("The body is not a JSON object.")
    return body


def request_of(body: Mapping[str, Any]) -> ChatRequest:
    """Raises BadCall: the body can't be passed on; the error names the field."""
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise BadCall('model is a name, such as "agent:support-clerk".', param="model")
    options = body.get("stream_options")
    if not isinstance(options, dict | None):
        raise BadCall("stream_options is an object.", param="stream_options")
    for name, why in DEARER.items():
        if body.get(name) is not None and body[name] not in NOTHING.get(name, ()):
            raise BadCall(f"{name} can't be used here: {why}, and no budget could bound it.", param=name)
    for name in TOOL_LISTS:
        if not isinstance(body.get(name) or [], list):
            raise BadCall(f"{name} is a list.", param=name)
    return ChatRequest(
        body=body,
        model=model,
        stream=body.get("stream") is True,
        wants_usage=bool((options or {}).get("include_usage")),
        limit=None if (limited := _limit(body)) is None else body[limited],
        limit_field=limited or LENGTHS[-1],
        images=tuple(_images(body.get("messages"))),
    )


def _limit(body: Mapping[str, Any]) -> str | None:
    """The field that bounds the answer. Raises BadCall."""
    for name in LENGTHS:
        value = body.get(name)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise BadCall(f"{name} is a whole number above 0.", param=name)
        return name
    return None


def _images(messages: Any) -> list[str]:
    """The URLs of the images in the messages. Raises BadCall: not a list of messages, or a part without a price
    bound."""
    if not isinstance(messages, list) or not 1 <= len(messages) <= MAX_MESSAGES:
        raise BadCall(f"messages is a list of 1 to {MAX_MESSAGES:,} messages.", param="messages")
    images: list[str] = []
    for at, message in enumerate(messages):
        if not isinstance(message, dict) or str(message.get("role")) not in ROLES:
            raise BadCall(f"It is an object with a role of {', '.join(sorted(ROLES))}.", param=f"messages.{at}")
        content = message.get("content")
        if not isinstance(content, str | list | None):
            raise BadCall("It is a text or a list of parts.", param=f"messages.{at}.content")
        for part in content if isinstance(content, list) else ():
            kind = part.get("type") if isinstance(part, dict) else None
            thought = message["role"] == "assistant" and str(kind) in THOUGHTS
            if kind not in ("text", "refusal", "image_url") and not thought:
                why = f"A part of kind {kind!r} can't be priced in advance: send text and images."
                raise BadCall(why, param=f"messages.{at}.content")
            if kind == "image_url":
                images.append(_address(part.get("image_url"), at))
    return images


def _address(image: Any, at: int) -> str:
    """Raises BadCall."""
    url = image.get("url") if isinstance(image, dict) else None
    if not isinstance(url, str):
        raise BadCall('An image is {"url": …}.', param=f"messages.{at}.content")
    return url


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if part.get("type") == "text")
    return content or ""
