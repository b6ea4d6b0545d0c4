"""uvicorn's HTTP protocol with what uvicorn itself does not have: a time limit for the arrival of a request,
connections that change their process, and bodies behind a wish for another protocol.

A request that asks for another protocol than websockets (Java's client asks for h2c) is served in this one, as RFC 9110
wants it. httptools takes all behind such a head for the other protocol, so that uvicorn alone loses the body.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, Final

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from agentcore_site import env
from agentcore_site.lib.connection_handover import connection_handover

UPGRADE: Final = (b"connection", b"upgrade", b"http2-settings")  # headers
LEAVING_SECONDS: Final = 5  # that a process which leaves keeps an idle connection that no other one can take
BYTES_PER_SECOND: Final = 1024  # a body has one second more for each


class TimedRequests(HttpToolsProtocol):
    """Head and body of a request have ``REQUEST_SECONDS`` each, a large body more by its size. A caller that is slower
    receives 408, and its connection is closed. While the application does not read, the time is not over. Between two
    requests the time is uvicorn's (``--timeout-keep-alive``).

    A request may belong to another process (``connection_handover``), which then gets the connection. ``begun``: what
    had arrived of its request there. ``leaving``: this process ends, and begins no request that another one can
    answer."""

    leaving: ClassVar[bool] = False

    def __init__(self, *args: Any, begun: bytes = b"", **more: Any) -> None:
        super().__init__(*args, **more)
        self._handover = connection_handover()
        self._first = begun  # bytes of a request that can't be parsed yet
        self._seconds = env.request_seconds()
        self._timer: asyncio.TimerHandle | None = None
        self._ends = 0.0  # by the clock of the loop
        self._begun = self._in_body = False  # a request has begun to arrive; its head is whole

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_request()
        if self._first:
            self.data_received(b"")

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if self._timer is None and self._is_idle:
            self._await_request()
        if self._handover and self._is_idle:
            data, self._first = self._first + data, b""
            if not self.leaving and self._handover.undecided(data):
                self._first = data
                return
            give = self._handover.passed_on if self.leaving else self._handover.gave
            if give(self.transport, data):
                self._stop()
                return
        self._parse(data)

    @property
    def _is_idle(self) -> bool:
        """Whether no request is under way; a few bytes of the next one may wait in ``_first``."""
        return not self._begun and not self.pipeline and (self.cycle is None or self.cycle.response_complete)

    def leave(self, *, patient: bool = True) -> None:
        """Gives an idle connection to another process. Where no process can take it (TLS), its caller reads in the next
        answer that it is closed: a connection that is closed without that loses the request that is being sent.
        Without ``patient`` it is closed all the same."""
        if self.transport.is_closing():
            return
        if not self._is_idle:
            if self._handover is None and self.cycle is not None and not self.cycle.response_started:
                self.cycle.keep_alive = False
        elif self._handover is not None and self._handover.passed_on(self.transport, self._first):
            self._stop()
        elif not patient:
            self.transport.close()
        elif self.timeout_keep_alive > LEAVING_SECONDS:
            self.timeout_keep_alive = LEAVING_SECONDS
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(LEAVING_SECONDS, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def _parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._should_upgrade():
                self.handle_websocket_upgrade()
            elif self._stays():
                self._parse(self._head() + data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

    def _stays(self) -> bool:
        """Whether the head that arrived asks for a protocol that is not served."""
        return self.parser.should_upgrade() and not self._should_upgrade() and self.parser.get_method() != b"CONNECT"

    def _head(self) -> bytes:
        """The head that arrived without its wish, for a parser that knows nothing of it."""
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        lines += [b"%s: %s" % pair for pair in self.headers if pair[0] not in UPGRADE]
        if any(name == b"connection" and b"close" in value.lower() for name, value in self.headers):
            lines.append(b"connection: close")
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's
        return b"\r\n".join([*lines, b"", b""])

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._await_request()
        self._begun = True

    def on_headers_complete(self) -> None:
        if self._stays():
            return
        self._in_body = True
        self._ends = self.loop.time() + self._seconds
        super().on_headers_complete()
        if self.leaving and self._handover is None and self.cycle is not None:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._ends += len(body) / BYTES_PER_SECOND
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._stays():
            return
        self._stop()
        super().on_message_complete()

    def handle_websocket_upgrade(self) -> None:
        self._stop()
        super().handle_websocket_upgrade()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._timer is None:  # no next request has begun
            self._begun = self._in_body = False
        if self.leaving:
            self.loop.call_soon(self.leave)  # once the answer is written

    def _await_request(self) -> None:
        self._stop()
        self._begun = self._in_body = False
        self._ends = self.loop.time() + self._seconds
        self._timer = self.loop.call_at(self._ends, self._check_time)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_time(self) -> None:
        now = self.loop.time()
        if self.flow.read_paused:
            self._ends = now + self._seconds
        if now < self._ends:
            self._timer = self.loop.call_at(self._ends, self._check_time)
            return
        self._timer = None
        if not self.transport.is_closing():
            self._give_up()

    def _give_up(self) -> None:
        cycle = self.cycle
        running = cycle is not None and not cycle.response_complete
        waiting = running and self._in_body and not cycle.response_started and not self.pipeline
        if self._begun and (waiting or (not running and not self._in_body)):
            text = b"The request did not arrive in time. Send it again, in one go.\n"
            head = b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
            self.transport.write(STATUS_LINE[408] + head % len(text) + text)
        if running:
            cycle.disconnected = True  # what the application sends now is dropped
            cycle.message_event.set()
        self.transport.close()
