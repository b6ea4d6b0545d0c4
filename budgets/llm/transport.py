"""Requests to a model endpoint, with memory, time and secrets bounded. Errors are values here: nothing is raised but
cancellation and what the caller's ``on_delta`` raises. So no exception of the HTTP library, which holds the
request with its headers, ends in the context of one of ours.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, Protocol

import orjson

from agentcore_site.lib import trace_context
from agentcore_site.lib.loop_turns import LoopTurns
from agentcore_site.outbound import (
    AddressRefused,
    ConnectionBroken,
    ConnectTimedOut,
    OutboundClient,
    OutboundError,
    Redirected,
    Response,
    Target,
)
from budgets.llm.errors import (
    BadAddress,
    BadRequest,
    BrokenAnswer,
    ConnectionLost,
    LLMError,
    Malformed,
    OtherApi,
    Timeout,
)
from budgets.llm.events import Event, EventReader, begins_stream
from budgets.llm.other_forms import unwrapped
from budgets.llm.refusals import refusal, refusal_in_answer
from budgets.llm.request import ModelRequest
from budgets.llm.secret import Secret
from budgets.llm.standard import standard_body
from budgets.llm.stream import Assembly, StreamDelta
from budgets.llm.types import Answer, Endpoint
from budgets.llm.usage import read_usage
from budgets.llm.wire import dumped_json, load, read

OnDelta = Callable[[str], None]


class Listener(Protocol):
    """Receives an answer as it comes. A call whose listener passed on a part of a stream is not made again.

    An exception of the listener ends the call: what came until then is settled, and the exception is raised.
    """

    def event(self, delta: StreamDelta) -> bool:
        """An event of a stream. Returns whether a part of the answer was passed on."""

    def whole(self, body: bytes, answer: Answer) -> None:
        """An answer that came in one piece; ``body`` is as OpenAI writes it."""


class TextListener:
    """Passes on the texts alone."""

    def __init__(self, on_delta: OnDelta) -> None:
        self._on_delta, self._passed_on = on_delta, False

    def event(self, delta: StreamDelta) -> bool:
        if delta.text:
            self._passed_on = True
            self._on_delta(delta.text)
        return self._passed_on

    def whole(self, body: bytes, answer: Answer) -> None:
        if answer.text:
            self._on_delta(answer.text)


ERROR_BYTES: Final = 64 * 1024
ENVELOPE: Final = 240
HEAD: Final = 4_096  # bytes of a body that are looked at for its kind
FEW: Final = 6  # characters that show it
PLAIN: Final = ("identity", "")  # codings of a body
PACKED: Final = ("gzip", "x-gzip", "deflate")


class Exchange:
    """One attempt: ``sent`` says whether it can have reached the provider (one that has not got the body can't have
    worked on it), ``request_id`` is the provider's, ``failure`` what the listener raised."""

    def __init__(self, request: ModelRequest) -> None:
        self.request = request
        self.sent = False
        self.request_id = ""
        self.failure: Exception | None = None

    def sending(self) -> None:
        self.sent = True


class Connection:
    """The connections to one endpoint, as many as there are exchanges at once. Belongs to one event loop.

    How many there can be is the gates' business.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._client: OutboundClient | None = None
        self._target: Target | None = None
        self._headers: dict[str, dict[str, str]] = {}  # by purpose

    async def exchange(
        self, exchange: Exchange, *, purpose: str = "", trace: str = "", listener: Listener | None = None
    ) -> Answer | LLMError:
        """Sends a request, with the key of its ``purpose``, and reads its answer within ``timeout_s``."""
        seconds = self._endpoint.timeout_s
        reading = _Reading(self._endpoint, exchange, listener)
        try:
            async with asyncio.timeout(seconds):
                return await reading.run(await self._send(exchange, purpose, trace))
        except (TimeoutError, ConnectTimedOut):
            return reading.lost(Timeout(f"No answer within {seconds:g} s."))
        except AddressRefused as error:
            return reading.lost(BadAddress(str(error)))
        except Redirected as error:
            return reading.refused(BadRequest(str(error), status=error.status))
        except OutboundError as error:
            return reading.lost(ConnectionLost(f"The connection failed. {error}"))

    async def aclose(self) -> None:
        """Closes what is idle: end the calls first."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _send(self, exchange: Exchange, purpose: str, trace: str) -> Response:
        """Raises OutboundError."""
        if self._client is None:
            self._client = OutboundClient(connect_s=min(self._endpoint.connect_s, self._endpoint.timeout_s))
        if self._target is None:
            self._target = self._client.target(self._endpoint.url)
        if (headers := self._headers.get(purpose)) is None:
            headers = self._headers[purpose] = _headers(self._endpoint, purpose)
        if (here := trace_context.current()) is not None:
            headers = {trace_context.HEADER: str(here), **headers}
        if trace and self._endpoint.kind == "portkey" and "x-portkey-trace-id" not in headers:
            shown = "".join(filter(str.isprintable, trace)).encode("ascii", "replace").decode()
            headers = {**headers, "x-portkey-trace-id": shown}
        return await self._client.send(
            "POST", self._target, headers=headers, body=exchange.request.body, sending=exchange.sending
        )


class _Reading:
    """The state of one attempt's answer."""

    def __init__(self, endpoint: Endpoint, exchange: Exchange, listener: Listener | None) -> None:
        self._endpoint = endpoint
        self._exchange = exchange
        self._listener = listener
        self._succeeding = False  # a success's headers are here: the answer has begun
        self._assembly: Assembly | None = None
        self._found, self._announced = bytearray(), 0  # of a whole answer: its bytes, and how many there should be
        self._passed_on = False

    async def run(self, response: Response) -> Answer | LLMError:
        exchange = self._exchange
        try:
            headers = response.headers
            exchange.request_id = headers.get("x-request-id", "")[:200]
            if not response.ok:
                body = await _beginning(response, ERROR_BYTES)
                return refusal(response.status, headers, body, self._endpoint.safe)
            self._succeeding = True
            answer = _AnswerBody(response, self._endpoint.max_answer_bytes)
            if exchange.request.stream:
                labelled = "text/event-stream" in headers.get("content-type", "")
                head = await self._head(answer, labelled)
                if begins_stream(head, labelled=labelled):
                    return await self._streamed(answer, head)
            await self._whole(answer, headers.get("content-length", ""))
            return self._answered(bytes(self._found))
        except Malformed as error:
            return self._malformed(error)
        finally:
            response.close()

    def lost(self, error: LLMError) -> Answer | LLMError:
        """``error`` where no answer had begun; else the answer was cut, unless all of it came."""
        if self._succeeding:
            try:  # a server that announced a byte more than it sent
                return self._answered(bytes(self._found), cut=True)
            except Malformed:
                return self._malformed(Malformed(f"The answer was cut. {error.message}", broken=True))
        error.unbilled = not self._exchange.sent
        return error

    def refused(self, error: LLMError) -> LLMError:
        """``error`` of a server that did nothing but refuse."""
        error.unbilled = True
        return error

    async def _head(self, body: _AnswerBody, labelled: bool) -> bytes:
        """The beginning of a body, enough to see whether it is a stream. It counts as found."""
        found = self._found
        while (chunk := await body.piece()) is not None:
            found += chunk
            start = found[:HEAD].lstrip()
            if len(found) >= HEAD or len(start) >= FEW or (start and labelled):
                break
        return bytes(found)

    async def _whole(self, body: _AnswerBody, announced: str) -> None:
        limit, found = self._endpoint.max_answer_bytes, self._found
        self._announced = int(announced) if announced.isdigit() else 0
        while max(len(found), self._announced) <= limit and (chunk := await body.piece()) is not None:
            found += chunk
        if max(len(found), self._announced) > limit:
            raise Malformed(f"The answer is larger than {limit:,} bytes.")

    def _answered(self, body: bytes, *, cut: bool = False) -> Answer:
        """The answer in a whole body. Raises Malformed; of a ``cut`` one nothing is passed on before it is good."""
        try:
            value, strict = orjson.loads(body), True
        except orjson.JSONDecodeError:
            if not cut and (events := _events_in(body, self._endpoint.max_answer_bytes)):
                return self._assembled(events)
            value, strict = load(body), False
        if (inner := unwrapped(value)) is not value:
            value, strict = inner, False
        answer = read(value)
        if self._listener is not None:
            self._pass_on_whole(standard_body(body, value, strict=strict), answer)
        return answer

    def _assembled(self, events: Iterable[Event]) -> Answer:
        """The answer of a stream that came with another label, or though none was requested."""
        self._assembly = assembly = Assembly(self._endpoint.max_answer_bytes)
        streamed = self._exchange.request.stream
        for event in events:
            for delta in assembly.add(event):
                if streamed:
                    self._pass_on(delta)
        answer = self._end(assembly)
        if not streamed and self._listener is not None:
            value = {"object": "chat.completion", **assembly.value()}
            self._pass_on_whole(standard_body(dumped_json(value), value, strict=True), answer)
        return answer

    async def _streamed(self, body: _AnswerBody, head: bytes) -> Answer:
        limit = self._endpoint.max_answer_bytes
        reader, assembly, turns = EventReader(limit), Assembly(limit), LoopTurns()
        self._assembly = assembly
        lost, chunk = "", head or None
        try:
            while chunk is not None or (chunk := await body.piece()) is not None:
                for event in reader.feed(chunk):
                    for delta in assembly.add(event):
                        self._pass_on(delta)
                    await turns.worked(len(event.data))
                chunk = None
        except ConnectionBroken as error:
            lost = f" {error}"
        if not lost:
            for event in reader.end():
                for delta in assembly.add(event):
                    self._pass_on(delta)
        return self._end(assembly, lost)

    def _end(self, assembly: Assembly, lost: str = "") -> Answer:
        """Raises Malformed."""
        if not assembly.ended:
            raise Malformed(f"The stream was cut.{lost}", broken=True)
        return read(assembly.value())

    def _malformed(self, error: Malformed) -> LLMError:
        assembly = self._assembly
        if error.usage is None and assembly is not None:
            error.usage = read_usage(assembly.usage, [])
            if error.broken and assembly.usage_is_late:  # it counts the beginning of the answer only
                error.usage = replace(error.usage, output_tokens=None, cost_micros=None)
        found = refusal_in_answer(error, self._endpoint.safe)
        found.final = self._passed_on
        if isinstance(found, OtherApi) or (error.broken and (assembly is not None or isinstance(found, BrokenAnswer))):
            found.received = _written(self._found, self._announced) if assembly is None else assembly.size
        return found

    def _pass_on(self, delta: StreamDelta) -> None:
        """Raises Malformed: the listener failed, so that the answer ends here."""
        if self._listener is None:
            return
        try:
            self._passed_on = self._listener.event(delta) or self._passed_on
        except Exception as error:
            self._exchange.failure = error
            raise Malformed(f"The caller failed: {type(error).__name__}.", broken=True) from None

    def _pass_on_whole(self, body: bytes, answer: Answer) -> None:
        assert self._listener is not None
        self._passed_on = True
        try:
            self._listener.whole(body, answer)
        except Exception as error:
            self._exchange.failure = error


def _events_in(body: bytes, limit: int) -> list[Event]:
    """The events of a stream under another label, or of lines of JSON; none where it is neither."""
    if begins_stream(body, labelled=False):
        reader = EventReader(limit)
        return [*reader.feed(body), *reader.end()]
    first, _, rest = body.strip().partition(b"\n")
    try:
        orjson.loads(first)
    except orjson.JSONDecodeError:
        return []
    if not rest.lstrip().startswith(b"{"):
        return []
    return [Event(line.decode("utf-8", "replace")) for line in body.split(b"\n") if line.strip()]


def _written(found: bytearray, announced: int) -> int:
    """Bytes of a JSON answer that the model wrote, as far as they came or were announced; what is no object is not a
    model's. The fields around its text (id, model, usage) are at least ``ENVELOPE`` bytes, half of them in front."""
    if found[:64].lstrip()[:1] != b"{":
        return 0
    return max(0, announced - ENVELOPE, len(found) - ENVELOPE // 2)


class _AnswerBody:
    """The bytes of an answer's body; a compressed one, which was not asked for, is unpacked within ``limit`` bytes at
    a time."""

    def __init__(self, response: Response, limit: int) -> None:
        self._response, self._limit = response, limit
        self._encoding = response.headers.get("content-encoding", "identity").strip().lower()
        # 32: a gzip or zlib header, whichever is there
        self._unpack = None if self._encoding in PLAIN else zlib.decompressobj(zlib.MAX_WBITS | 32)

    async def piece(self) -> bytes | None:
        """None at the end. Raises Malformed, ConnectionBroken."""
        if self._unpack is None:
            return await self._response.piece()
        if self._encoding not in PACKED:
            raise Malformed("The answer is compressed in a way that was not asked for.", broken=True)
        if self._unpack.unconsumed_tail:
            raise Malformed(f"The answer is larger than {self._limit:,} bytes.")
        chunk = await self._response.piece()
        if chunk is None:
            return None
        try:
            return self._unpack.decompress(chunk, self._limit + 1)
        except zlib.error:
            raise Malformed("The answer is compressed and broken.", broken=True) from None


async def _beginning(response: Response, limit: int) -> bytes:
    """The first ``limit`` bytes of an error's body. What can't be read is left out: the status says enough."""
    found = bytearray()
    try:
        body = _AnswerBody(response, limit)
        while (chunk := await body.piece()) is not None:
            found += chunk
            if len(found) >= limit:
                break
    except (OutboundError, Malformed):
        pass
    return bytes(found[:limit])


def _headers(endpoint: Endpoint, purpose: str) -> dict[str, str]:
    """Only here do secrets leave their wrapping; ``Endpoint`` has seen to it that no value can end its line."""
    given = {name.lower(): value for name, value in endpoint.headers.items()}
    headers = {
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        **{name: value.reveal() if isinstance(value, Secret) else value for name, value in given.items()},
    }
    name = endpoint.key_header
    if (key := endpoint.key_of(purpose)) and name not in headers:
        headers[name] = f"Bearer {key.reveal()}" if name == "authorization" else key.reveal()
    return headers
