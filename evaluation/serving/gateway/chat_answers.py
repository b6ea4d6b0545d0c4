"""An upstream's chat completion passed to the caller, whole or as a stream: unchanged where it has OpenAI's form."""

from __future__ import annotations

from typing import Any

import orjson

from budgets.llm.stream import StreamDelta
from budgets.llm.types import Answer
from budgets.llm.wire import DONE
from evaluation.serving.gateway.gateway_call import GatewayCall
from evaluation.serving.gateway.pieces import WORKING, Pieces
from evaluation.serving.gateway.request import object_in, request_of

END = b"data: [DONE]\n\n"


class ChatInterface:
    """A request to ``/v1/chat/completions``. Raises BadCall."""

    def __init__(self, read: bytes) -> None:
        self.request = request_of(object_in(read))

    def whole(self, call: GatewayCall) -> WholeAnswer:
        return WholeAnswer(call)

    def streamed(self, call: GatewayCall) -> StreamedAnswer:
        return StreamedAnswer(call)


class WholeAnswer:
    """The upstream's answer, byte for byte where it has OpenAI's form."""

    def __init__(self, call: GatewayCall) -> None:
        self._call, self._body = call, b""

    def event(self, delta: StreamDelta) -> bool:
        raise AssertionError("no stream was requested")

    def whole(self, body: bytes, answer: Answer) -> None:
        self._call.token_received()
        self._body = body

    def sent(self, done: dict[str, Any] | None) -> bytes:
        """The body. ``done``: the answer of an agent that chooses actions, else None."""
        return self._body if done is None else orjson.dumps(done)


class StreamedAnswer:
    """Events of a stream as they come. A whole answer of an upstream or an agent is sent as a stream of one event."""

    def __init__(self, call: GatewayCall) -> None:
        self._call = call
        self.pieces = Pieces()
        call.on_step = lambda: self.pieces.put(WORKING)

    def event(self, delta: StreamDelta) -> bool:
        data = delta.data.strip()
        if data == DONE:
            return True
        if not self._call.request.wants_usage and '"usage"' in data:
            data = _without_usage(data)
        if data:
            if delta.text:
                self._call.token_received()
            self.pieces.put(b"data: " + data.replace("\n", "\ndata: ").encode() + b"\n\n")
        return True

    def whole(self, body: bytes, answer: Answer) -> None:
        self._call.token_received()
        self.pieces.put(as_events(orjson.loads(body), usage=self._call.request.wants_usage))

    def rest(self, done: dict[str, Any] | None) -> bytes:
        """The final bytes, once the call is over."""
        if done is None:
            return END
        return as_events(done, usage=self._call.request.wants_usage) + END

    def failed(self, error: dict[str, Any]) -> bytes:
        """The last event of a call that fails midway; ``error`` has the form of an error body."""
        return b"data: " + orjson.dumps(error) + b"\n\n"


def as_events(answer: dict[str, Any], *, usage: bool) -> bytes:
    """A whole completion as a stream of two events, and a third with its usage if ``usage``."""
    base = {name: answer.get(name) for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    choice = (answer.get("choices") or [{}])[0]
    message = dict(choice.get("message") or {})
    if calls := message.get("tool_calls"):
        message["tool_calls"] = [{"index": at, **one} for at, one in enumerate(calls)]
    events: list[dict[str, Any]] = [
        base | {"choices": [{"index": 0, "delta": message, "finish_reason": None}]},
        base | {"choices": [{"index": 0, "delta": {}, "finish_reason": choice.get("finish_reason") or "stop"}]},
    ]
    if usage:
        events.append(base | {"choices": [], "usage": answer.get("usage")})
    return b"".join(b"data: " + orjson.dumps(event) + b"\n\n" for event in events)


def _without_usage(data: str) -> str:
    """An event without the usage that only the gateway requested; "" if nothing else is left."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return data
    if not isinstance(value, dict) or "usage" not in value:
        return data
    del value["usage"]
    return orjson.dumps(value).decode() if value.get("choices") else ""
