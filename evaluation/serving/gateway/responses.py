"""OpenAI's Responses API, translated into chat completions and back.

A field without an equivalent in chat completions is refused, never dropped: the caller would not notice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from budgets.llm.stream import StreamDelta
from budgets.llm.streamed_calls import CallPiece
from budgets.llm.types import Answer, Completion
from budgets.meter_port import Bill
from budgets.pricing import Usage
from evaluation.serving.gateway.gateway_call import GatewayCall
from evaluation.serving.gateway.pieces import WORKING, Pieces
from evaluation.serving.gateway.request import object_in, request_of
from experiences.rollouts.runtimes.chat_body import BadCall, body_in
from experiences.rollouts.runtimes.responses_answer import ResponseStream, response_begun, response_json
from experiences.rollouts.runtimes.responses_body import ResponsesBody

TRANSLATED: Final = frozenset({
    "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "max_output_tokens", "temperature", "text",
    "stream",
})  # fmt: skip
# Fields with the same name in a chat completion.
PASSED: Final = (
    "model", "user", "metadata", "top_p", "service_tier", "safety_identifier", "prompt_cache_key",
    "prompt_cache_retention",
)  # fmt: skip
OF_THE_CLIENT: Final = frozenset({"client_metadata"})  # what a client says of itself; no model receives it
THOUGHTS: Final = "reasoning.encrypted_content"  # what a model's service wants back is always included
# Values that are accepted because they have no effect.
NOTHING: Final[Mapping[str, Sequence[Any]]] = {
    "truncation": ("disabled",), "include": ([], [THOUGHTS]), "background": (False,),
    "store": (False, True),  # the API's default; the answer says that it is not kept
}  # fmt: skip
PARTS: Final[Mapping[str, frozenset[str]]] = {
    "text": frozenset({"format", "verbosity"}),
    "reasoning": frozenset({"effort"}),
    "stream_options": frozenset({"include_obfuscation"}),  # padding of a stream's events, which are never padded here
}
# A summary of the thoughts "where there is one": coding agents always ask so, and chat completions never have one.
WHERE_THERE_IS_ONE: Final = {"reasoning.summary": ("auto", "none"), "reasoning.generate_summary": ("auto",)}
KEPT: Final = "Responses are not kept here: send the whole input to POST /v1/responses."
WHY: Final[Mapping[str, str]] = {"previous_response_id": KEPT, "conversation": KEPT}


class ResponsesInterface:
    """A request to ``/v1/responses``. Raises BadCall: a field is invalid or has no equivalent."""

    def __init__(self, read: bytes) -> None:
        body = object_in(read)
        for name, value in body.items():
            _carried(name, value)
        asked = body_in(read, ResponsesBody)
        passed = {name: body[name] for name in PASSED if body.get(name) is not None}
        thought = {"reasoning_effort": (body.get("reasoning") or {}).get("effort")}
        spoken = {"verbosity": (body.get("text") or {}).get("verbosity")}
        more = {name: value for name, value in (thought | spoken).items() if value is not None}
        self.request = request_of(asked.chat_json() | passed | more)
        self._begun = response_begun(asked, self.request.model) | {"store": False, "metadata": self.request.metadata}

    def whole(self, call: GatewayCall) -> WholeResponse:
        return WholeResponse(call, self._begun)

    def streamed(self, call: GatewayCall) -> StreamedResponse:
        return StreamedResponse(call, self._begun)


def _carried(name: str, value: Any) -> None:
    """Raises BadCall: the field is not translated."""
    if value is None or name in OF_THE_CLIENT or value in NOTHING.get(name, ()):
        return
    if name in PARTS:
        if not isinstance(value, dict):
            raise BadCall(f"{name} is an object.", param=name)
        for part in value.keys() - PARTS[name]:
            if value[part] is not None and value[part] not in WHERE_THERE_IS_ONE.get(f"{name}.{part}", ()):
                raise BadCall(f"{name}.{part} is not carried to chat completions.", param=f"{name}.{part}")
    elif name not in TRANSLATED and name not in PASSED:
        raise BadCall(WHY.get(name, f"{name} is not carried to chat completions."), param=name)


class WholeResponse:
    """The answer in one piece."""

    def __init__(self, call: GatewayCall, begun: dict[str, Any]) -> None:
        self._call, self._begun = call, begun

    def event(self, delta: StreamDelta) -> bool:
        raise AssertionError("no stream was asked for")

    def whole(self, body: bytes, answer: Answer) -> None:
        self._call.token_received()

    def sent(self, done: dict[str, Any] | None) -> bytes:
        return orjson.dumps(response_json(self._begun, _completion(self._call, done)))


class StreamedResponse:
    """Events of the model's text and of its tool calls' arguments, as they come."""

    def __init__(self, call: GatewayCall, begun: dict[str, Any]) -> None:
        self._call, self._begun = call, begun
        self._events, self._begin_sent = ResponseStream(begun), False
        self.pieces = Pieces()
        call.on_step = lambda: self.pieces.put(WORKING)

    def event(self, delta: StreamDelta) -> bool:
        self._send(delta.text, delta.calls)
        return True

    def whole(self, body: bytes, answer: Answer) -> None:
        self._send(answer.text)

    def rest(self, done: dict[str, Any] | None) -> bytes:
        whole = response_json(self._begun, _completion(self._call, done))
        return self._beginning() + _written(self._events.end(whole))

    def failed(self, error: dict[str, Any]) -> bytes:
        """The API's events of a failure."""
        return self._beginning() + _written(self._events.failed(error))

    def _send(self, text: str, calls: Iterable[CallPiece] = ()) -> None:
        sent = self._beginning()
        if text:
            self._call.token_received()
            sent += _written(self._events.piece(text))
        for call in calls:
            if call.name:
                self._call.token_received()
            sent += _written(self._events.called(call.number, call.arguments, call_id=call.id, name=call.name))
        if sent:
            self.pieces.put(sent)

    def _beginning(self) -> bytes:
        if self._begin_sent:
            return b""
        self._begin_sent = True
        return _written(self._events.begin())


def _written(events: Iterable[Mapping[str, Any]]) -> bytes:
    return b"".join(f"event: {event['type']}\ndata: ".encode() + orjson.dumps(event) + b"\n\n" for event in events)


def _completion(call: GatewayCall, done: dict[str, Any] | None) -> Completion:
    """The answer; ``done``: that of an agent that takes steps here, which are in the call's trace."""
    if done is None:
        assert call.completion is not None
        return call.completion
    choice = done["choices"][0]
    bill = Bill(0, None, "none")
    text, reason = choice["message"]["content"], choice["finish_reason"]
    used = Usage(done["usage"]["prompt_tokens"], done["usage"]["completion_tokens"])
    return Completion(text, (), reason, used, 0, done["model"], 0, done["id"], bill)
