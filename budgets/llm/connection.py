"""One HTTP/1.1 connection over an asyncio transport, with llhttp (``httptools``) as its parser.

500 agents at once share one core, so that what a call costs there is what they wait for each other. With httpx's own
transport a metered call took 0.75 ms of a core, with h11 over asyncio's streams 0.22, with this one 0.13. It does what
a model client needs and no more: POST with a body of known length, keep-alive, chunked and closed bodies, TLS; no
proxies, no HTTP/2, no redirects.

Errors are httpx's: ConnectError and ConnectTimeout before anything was sent, ReadError and RemoteProtocolError after
that. The time of a whole exchange is the caller's to limit.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import httptools
import httpx

MAX_HEAD: Final = 64 * 1024  # bytes of an answer's head
HIGH_WATER: Final = 256 * 1024  # bytes of a body that wait to be read before the socket is left alone


@dataclass(frozen=True, slots=True)
class Place:
    """Where a connection goes. ``tls`` is the context for https; ``connect_s`` limits connecting."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    connect_s: float


@dataclass(slots=True)
class Head:
    """Status and headers (by their names in lower case) of an answer."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def until_closed(self) -> bool:
        """Whether the body ends with the connection."""
        return "content-length" not in self.headers and "transfer-encoding" not in self.headers


class Wire(asyncio.Protocol):
    """Bytes in, events out. One exchange at a time: ``begin`` before each, ``over`` when its answer is whole."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.closed = False
        self.stray = False  # bytes came that belong to no exchange: they would be read as the next one's answer
        self._exchanging = False
        self._waiter: asyncio.Future[None] | None = None
        self._held = self._head_bytes = 0  # bytes of the body that wait to be read; of the head so far
        self._paused = False
        self._reset()
        self._fresh = True

    def begin(self) -> None:
        if not self._fresh:
            self._reset()
        self._fresh = False
        self._exchanging = True

    # -- what the exchange asks ------------------------------------------------------------------------------------

    async def head(self) -> Head:
        """Raises httpx.ReadError and httpx.RemoteProtocolError."""
        while not self._headed:
            if self._error is not None:
                raise self._error
            if self.closed:
                raise httpx.RemoteProtocolError("The server hung up without an answer.")
            await self._something()
        return self._head

    async def piece(self) -> bytes | None:
        """The next piece of the body, as it arrives; None at its end. (An asynchronous generator would cost more than
        all that is done here.) Raises httpx.ReadError and httpx.RemoteProtocolError."""
        while not self._pieces:
            if self._error is not None:
                raise self._error
            if self._complete or (self.closed and self._head.until_closed):
                return None
            if self.closed:
                raise httpx.RemoteProtocolError("The server hung up in the middle of its answer.")
            await self._something()
        piece = self._pieces.popleft()
        self._held -= len(piece)
        if self._paused and self._held < HIGH_WATER:
            self._paused = False
            self.transport.resume_reading()
        return piece

    @property
    def over(self) -> bool:
        """Whether the answer was read to its end, and the connection may carry another exchange."""
        whole = self._complete and not self._pieces and self._error is None
        return whole and self._keep_alive and not self.stray and not self.closed

    def rest(self) -> None:
        """Nothing is asked now: whatever arrives is stray."""
        self._exchanging = False

    async def _something(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _reset(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._head = Head()
        self._headed = self._complete = self._keep_alive = self._paused = False
        self._pieces: deque[bytes] = deque()
        self._held = self._head_bytes = 0
        self._error: httpx.HTTPError | None = None

    # -- what the event loop tells ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if not self._exchanging or self._complete:
            self.stray = True
            self._wake()
            return
        if not self._headed:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            # What follows a whole answer is none of it, whatever it is.
            if self._complete:
                self.stray = True
            else:
                self._error = httpx.RemoteProtocolError(f"The server does not speak HTTP: {type(error).__name__}.")
        if not self._headed and self._head_bytes > MAX_HEAD:
            self._error = httpx.RemoteProtocolError("The head of the answer has no end.")
        self._wake()

    def eof_received(self) -> bool:
        self.closed = True
        self._wake()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        if error is not None and self._exchanging and not self._complete and self._error is None:
            self._error = httpx.ReadError("The connection was lost.")
        self._wake()

    # -- what the parser tells -------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._complete:
            self.stray = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._complete:
            return
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        known = self._head.headers.get(key)
        self._head.headers[key] = text if known is None else f"{known}, {text}"

    def on_headers_complete(self) -> None:
        if self._complete:
            return
        self._head.status = self._parser.get_status_code()
        if self._head.status >= 200:
            self._headed = True
            self._keep_alive = self._parser.should_keep_alive()

    def on_body(self, body: bytes) -> None:
        if self._complete:
            return
        self._pieces.append(body)
        self._held += len(body)
        if self._held > HIGH_WATER and not self._paused:
            self._paused = True
            self.transport.pause_reading()

    def on_message_complete(self) -> None:
        if self._headed:
            self._complete = True
        else:  # an informational answer (1xx): the real one follows
            self._head = Head()


@dataclass(slots=True)
class Response:
    """An answer whose body is still to be read. ``aclose`` keeps its connection where it was read to its end."""

    status: int
    headers: dict[str, str]
    connection: Connection
    wire: Wire

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    async def piece(self) -> bytes | None:
        """As ``Wire.piece``."""
        return await self.wire.piece()

    def close(self) -> None:
        self.connection.release(self.wire)


class Connection:
    """At most one exchange at a time; connects when it is first used and again when it has to.

    An idle connection is not used again after ``idle_s`` seconds.
    """

    def __init__(self, place: Place, *, idle_s: float) -> None:
        self._place = place
        self._idle_s = idle_s
        self._idle_since = 0.0
        self._wire: Wire | None = None

    async def exchange(self, head: bytes, body: bytes, *, sending: Callable[[], None]) -> Response:
        """Sends a request and reads the head of its answer. ``sending`` is called before the first byte is sent."""
        wire = self._wire
        if wire is None or not self._usable(wire):
            self.drop()
            wire = await self._connect()
        try:
            wire.begin()
            sending()
            wire.transport.write(head + body)
            found = await wire.head()
        except BaseException:
            self.drop()
            raise
        return Response(found.status, found.headers, self, wire)

    def release(self, wire: Wire) -> None:
        """Keeps the connection for the next exchange where this one was read to its end, else closes it."""
        if wire is self._wire and wire.over:
            wire.rest()
            self._idle_since = time.monotonic()
        else:
            self.drop()

    def drop(self) -> None:
        if self._wire is not None:
            self._wire.transport.abort()
        self._wire = None

    def _usable(self, wire: Wire) -> bool:
        """Whether an idle connection can carry one more request: it is young, the server has not hung up, and it has
        sent nothing since: that would be read as the answer to the next request."""
        idle = time.monotonic() - self._idle_since < self._idle_s
        return idle and not wire.closed and not wire.stray and not wire.transport.is_closing()

    async def _connect(self) -> Wire:
        place, loop = self._place, asyncio.get_running_loop()
        # The web server's loop (uvloop) tries a host's addresses in turn and takes no such argument.
        eager: dict[str, Any] = {"happy_eyeballs_delay": 0.25} if isinstance(loop, asyncio.BaseEventLoop) else {}
        try:
            async with asyncio.timeout(place.connect_s):
                _, wire = await loop.create_connection(
                    Wire,
                    place.host,
                    place.port,
                    ssl=place.tls,
                    server_hostname=place.host if place.tls else None,
                    **eager,
                )
        except TimeoutError:
            raise httpx.ConnectTimeout("The connection was not made in time.") from None
        except OSError as error:
            raise httpx.ConnectError(type(error).__name__) from None
        self._wire = wire
        return wire
