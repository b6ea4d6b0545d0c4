"""Requests over HTTP, with memory, time and secrets bounded. Errors are values here: nothing is raised but
cancellation and what the caller's ``on_delta`` raises, so that no exception of the HTTP library, which holds the
request with its headers, ends in the context of one of ours.

Redirects are not followed, the environment (proxies, netrc) is not read, answers are asked for uncompressed.
"""

from __future__ import annotations

import asyncio
import ssl
import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import Final

import httpx

from budgets.llm.connection import Connection, Place, Response
from budgets.llm.errors import ConnectionLost, LLMError, Malformed, Timeout
from budgets.llm.refusals import refusal, refusal_in_answer
from budgets.llm.request import Request
from budgets.llm.secret import Secret
from budgets.llm.stream import Assembly, EventReader
from budgets.llm.types import Answer, Endpoint
from budgets.llm.usage import read_usage
from budgets.llm.wire import load, read

OnDelta = Callable[[str], None]

IDLE_S: Final = 4.0  # uvicorn (vLLM) closes after 5; a request sent into a closing connection would cost a hold
ERROR_BYTES: Final = 64 * 1024
PLAIN: Final = ("identity", "")  # codings of a body
PACKED: Final = ("gzip", "x-gzip", "deflate")


class Exchange:
    """One attempt: ``sent`` says whether it can have reached the provider (one that has not got the body can't have
    worked on it), ``request_id`` is the provider's."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.sent = False
        self.request_id = ""

    def sending(self) -> None:
        self.sent = True


class Line:
    """The connections to one endpoint, as many as there are exchanges at once. Belongs to one event loop.

    How many there can be is the gates' business.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        url = httpx.URL(endpoint.url)
        self._head = _head(endpoint, url)
        self._place = Place(
            host=url.raw_host.decode(),
            port=url.port or (443 if url.scheme == "https" else 80),
            tls=tls(endpoint.ca_file) if url.scheme == "https" else None,
            connect_s=min(endpoint.connect_s, endpoint.timeout_s),
        )
        self._idle: list[Connection] = []  # the last one used is the next: it is the warmest

    async def exchange(
        self, exchange: Exchange, *, trace: str = "", on_delta: OnDelta | None = None
    ) -> Answer | LLMError:
        """Sends a request and reads its answer within ``timeout_s``."""
        connection = self._idle.pop() if self._idle else Connection(self._place, idle_s=IDLE_S)
        seconds = self._endpoint.timeout_s
        reading = _Reading(self._endpoint, exchange)
        try:
            async with asyncio.timeout(seconds):
                return await reading.run(connection, self._head_of(exchange, trace), on_delta)
        except (TimeoutError, httpx.TimeoutException):
            return reading.lost(Timeout(f"No answer within {seconds:g} s."))
        except httpx.HTTPError as error:
            return reading.lost(ConnectionLost(f"The connection failed: {type(error).__name__}."))
        finally:
            self._idle.append(connection)

    async def aclose(self) -> None:
        """Closes what is idle: end the calls first."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.drop()

    def _head_of(self, exchange: Exchange, trace: str) -> bytes:
        head = self._head + b"content-length: %d\r\n" % len(exchange.request.body)
        if trace and self._endpoint.kind == "portkey" and "x-portkey-trace-id" not in self._endpoint.headers:
            shown = "".join(filter(str.isprintable, trace)).encode("ascii", "replace")
            head += b"x-portkey-trace-id: %s\r\n" % shown
        return head + b"\r\n"


class _Reading:
    """How far one attempt got."""

    def __init__(self, endpoint: Endpoint, exchange: Exchange) -> None:
        self._endpoint = endpoint
        self._exchange = exchange
        self._succeeding = False  # a success's headers are here: the answer has begun
        self._assembly: Assembly | None = None

    async def run(self, connection: Connection, head: bytes, on_delta: OnDelta | None) -> Answer | LLMError:
        exchange = self._exchange
        response = await connection.exchange(head, exchange.request.body, sending=exchange.sending)
        try:
            headers = response.headers
            exchange.request_id = headers.get("x-request-id", "")[:200]
            if not response.ok:
                body = await _beginning(response, ERROR_BYTES)
                return refusal(response.status, headers, body, self._endpoint.safe)
            self._succeeding = True
            if exchange.request.stream and "text/event-stream" in headers.get("content-type", ""):
                return await self._streamed(response, on_delta)
            answer = read(load(await self._whole(response)))
            if on_delta is not None and answer.text:
                on_delta(answer.text)
            return answer
        except Malformed as error:
            return self._malformed(error)
        finally:
            response.close()

    def lost(self, error: LLMError) -> LLMError:
        """``error`` where no answer had begun; else the answer was cut, and a second attempt would repeat its text."""
        if self._succeeding:
            return self._malformed(Malformed(f"The answer was cut. {error.message}"))
        error.unbilled = not self._exchange.sent
        return error

    async def _whole(self, response: Response) -> bytes:
        limit = self._endpoint.max_answer_bytes
        announced = response.headers.get("content-length", "")
        if announced.isdigit() and int(announced) > limit:
            raise Malformed(f"The answer is larger than {limit:,} bytes.")
        found = bytearray()
        body = _Body(response, limit)
        while (chunk := await body.piece()) is not None:
            found += chunk
            if len(found) > limit:
                raise Malformed(f"The answer is larger than {limit:,} bytes.")
        return bytes(found)

    async def _streamed(self, response: Response, on_delta: OnDelta | None) -> Answer:
        limit = self._endpoint.max_answer_bytes
        reader, assembly = EventReader(limit), Assembly(limit)
        self._assembly = assembly
        lost = ""
        try:
            body = _Body(response, limit)
            while (chunk := await body.piece()) is not None:
                for data in reader.feed(chunk):
                    _told(assembly.add(data), on_delta)
        except httpx.HTTPError as error:
            lost = type(error).__name__
        if not lost:
            for data in reader.end():
                _told(assembly.add(data), on_delta)
        if not assembly.ended:
            raise Malformed(f"The stream was cut{f': {lost}' if lost else ''}.")
        return read(assembly.value())

    def _malformed(self, error: Malformed) -> LLMError:
        if error.usage is None and self._assembly is not None:
            error.usage = read_usage(self._assembly.usage, [])
        return refusal_in_answer(error, self._endpoint.safe)


def _told(text: str, on_delta: OnDelta | None) -> None:
    if text and on_delta is not None:
        on_delta(text)


class _Body:
    """The bytes of an answer's body; a compressed one, which nobody asked for, is unpacked within ``limit`` bytes at a
    time."""

    def __init__(self, response: Response, limit: int) -> None:
        self._response, self._limit = response, limit
        self._encoding = response.headers.get("content-encoding", "identity").strip().lower()
        # 32: a gzip or zlib header, whichever is there
        self._unpack = None if self._encoding in PLAIN else zlib.decompressobj(zlib.MAX_WBITS | 32)

    async def piece(self) -> bytes | None:
        """None at the end. Raises Malformed, and what the connection raises."""
        if self._unpack is None:
            return await self._response.piece()
        if self._encoding not in PACKED:
            raise Malformed("The answer is compressed in a way that was not asked for.")
        if self._unpack.unconsumed_tail:
            raise Malformed(f"The answer is larger than {self._limit:,} bytes.")
        chunk = await self._response.piece()
        if chunk is None:
            return None
        try:
            return self._unpack.decompress(chunk, self._limit + 1)
        except zlib.error:
            raise Malformed("The answer is compressed and broken.") from None


async def _beginning(response: Response, limit: int) -> bytes:
    """The first ``limit`` bytes of an error's body. What can't be read is left out: the status says enough."""
    found = bytearray()
    try:
        body = _Body(response, limit)
        while (chunk := await body.piece()) is not None:
            found += chunk
            if len(found) >= limit:
                break
    except (httpx.HTTPError, Malformed):
        pass
    return bytes(found[:limit])


def _head(endpoint: Endpoint, url: httpx.URL) -> bytes:
    """The beginning of every request, up to what is its own. Only here do secrets leave their wrapping; ``Endpoint``
    has seen to it that no value can end its line."""
    given = {name.lower(): value for name, value in endpoint.headers.items()}
    lines: dict[str, str | Secret] = {
        "host": url.netloc.decode(),
        "accept": "application/json, text/event-stream",
        "accept-encoding": "identity",
        "content-type": "application/json",
        "user-agent": "agentcore",
        **given,
    }
    if endpoint.api_key and "authorization" not in given:
        lines["authorization"] = Secret(f"Bearer {endpoint.api_key.reveal()}")
    shown = {name: value.reveal() if isinstance(value, Secret) else value for name, value in lines.items()}
    first = b"POST %s HTTP/1.1\r\n" % url.raw_path
    return first + "".join(f"{name}: {value}\r\n" for name, value in shown.items()).encode()


@lru_cache(maxsize=16)
def tls(ca_file: str) -> ssl.SSLContext:
    """One context for all connections: loading the certificates takes longer than a call."""
    return ssl.create_default_context(cafile=ca_file) if ca_file else httpx.create_ssl_context(trust_env=False)
