"""The web server: uvicorn, with all its options, a time limit for the arrival of requests, and connections that change
their process.

``python -m agentcore_site.web_server agentcore_site.asgi:application --port 8000``
"""

from __future__ import annotations

import asyncio
import socket
import sys
from importlib import import_module
from typing import Any, Final

from uvicorn.config import HTTP_PROTOCOLS
from uvicorn.server import Server

from agentcore_site.lib.connection_handover import connection_handover, is_gateway
from agentcore_site.lib.timed_requests import TimedRequests

# Busy threads give way so often. After each of its waits for the database a page waits as long for each of them, with
# Python's own value 5 ms each time.
SWITCH_SECONDS: Final = 0.0005


class SharingServer(Server):
    """Takes connections from the channel too; a process of the gateway takes no others."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([] if is_gateway() else sockets)
        if handover := connection_handover():
            handover.receive(self._protocol)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if handover := connection_handover():
            handover.stop()
        await super().shutdown(sockets)

    def _protocol(self, begun: bytes) -> asyncio.Protocol:
        return TimedRequests(self.config, self.server_state, self.lifespan.state, begun=begun)


HTTP_PROTOCOLS["auto"] = "agentcore_site.lib.timed_requests:TimedRequests"
command_line: Any = import_module("uvicorn.main")
command_line.Server = SharingServer

if __name__ == "__main__":
    sys.setswitchinterval(SWITCH_SECONDS)
    command_line.main()
