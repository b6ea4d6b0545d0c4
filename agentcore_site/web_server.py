"""The web server: uvicorn, with all its options, a time limit for the arrival of requests, and connections that change
their process.

On SIGTERM it ends within ``--timeout-graceful-shutdown`` seconds. On SIGHUP another process has taken its place: it
begins no request, gives its idle connections away, and has ten minutes for the answers that it has begun.

``python -m agentcore_site.web_server agentcore_site.asgi:application --port 8000``
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import time
from importlib import import_module
from types import FrameType
from typing import Any, Final

from uvicorn.config import HTTP_PROTOCOLS
from uvicorn.server import Server

from agentcore_site.lib.connection_handover import LEAVE_SECONDS, connection_handover, is_gateway
from agentcore_site.lib.timed_requests import TimedRequests

# Busy threads give way so often. After each of its waits for the database a page waits as long for each of them, with
# Python's own value 5 ms each time.
SWITCH_SECONDS: Final = 0.0005
LEAVE_EVERY: Final = 0.1  # seconds: a connection with unsent bytes, or a full channel, is tried again
IDLE_SECONDS: Final = 1.0  # that idle connections have to find another process before the end


class SharingServer(Server):
    """Takes connections from the channel too; a process of the gateway takes no others."""

    _patient = False  # it has a successor
    _ends = 0.0  # by the monotonic clock

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([] if is_gateway() else sockets)
        if handover := connection_handover():
            handover.receive(self._protocol)
        signal.signal(signal.SIGHUP, self._leave)

    def _leave(self, *_: Any) -> None:
        self.should_exit = self._patient = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """SIGTERM shortens the time of a process that leaves."""
        super().handle_exit(sig, frame)
        if self._patient:
            self._patient, self._ends = False, time.monotonic() + self._short

    @property
    def _short(self) -> float:
        return float(self.config.timeout_graceful_shutdown or 0)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        TimedRequests.leaving = True
        for server in self.servers:
            server.close()
        if handover := connection_handover():
            handover.stop()
        await self._end_connections()
        # What is left now is cut off: uvicorn cancels it, and the gateway settles and stores what it came to.
        self.config.timeout_graceful_shutdown = 1
        await super().shutdown(sockets)

    async def _end_connections(self) -> None:
        """Returns when all answers that were begun are sent, or their time is over."""
        began, state = time.monotonic(), self.server_state
        self._ends = began + (LEAVE_SECONDS if self._patient else self._short)
        while (state.connections or state.tasks) and (now := time.monotonic()) < self._ends and not self.force_exit:
            connections: list[Any] = list(state.connections)
            for connection in connections:
                if isinstance(connection, TimedRequests):
                    connection.leave(patient=self._patient or now < began + IDLE_SECONDS)
                elif not connection.transport.is_closing():
                    connection.shutdown()  # a websocket: 1012, and its page connects again
                    connection.close_sent = True  # uvicorn must not close it a second time
            await asyncio.sleep(LEAVE_EVERY)

    def _protocol(self, begun: bytes) -> asyncio.Protocol:
        return TimedRequests(self.config, self.server_state, self.lifespan.state, begun=begun)


HTTP_PROTOCOLS["auto"] = "agentcore_site.lib.timed_requests:TimedRequests"
command_line: Any = import_module("uvicorn.main")
command_line.Server = SharingServer

if __name__ == "__main__":
    sys.setswitchinterval(SWITCH_SECONDS)
    command_line.main()
