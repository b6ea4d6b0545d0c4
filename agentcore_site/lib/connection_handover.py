"""Connections that change their process: web processes hand those with a call of the gateway to the gateway's own
processes, and get others back. Both kinds share one channel, which `manage.py up` owns."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Callable
from functools import cache
from typing import Any, Final

CHANNEL: Final = "HANDOVER_CHANNEL"  # number of the inherited file; without it a process keeps its connections
GATEWAY: Final = "GATEWAY_PROCESS"  # set for the gateway's processes
LONGEST: Final = 2**18  # bytes of a message: more than an event loop reads at once
DECISIVE: Final = len(b"OPTIONS /v1/")  # bytes after which a request line shows where it belongs
LEAVE_SECONDS: Final = 600  # that a process with a successor has for the answers that it has begun
_CALL: Final = re.compile(rb"[A-Z]+ /v1/")


def is_gateway() -> bool:
    return GATEWAY in os.environ


def channel_ends() -> tuple[socket.socket, socket.socket]:
    """The end of web processes, and that of the gateway's. What waits in it outlives the processes."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    for end in ends:
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LONGEST)
    return ends


class ConnectionHandover:
    """This process's end of the channel."""

    def __init__(self, channel: socket.socket, *, gateway: bool) -> None:
        self._channel, self._gateway = channel, gateway

    def undecided(self, begun: bytes) -> bool:
        """True while too little of a request has arrived."""
        return len(begun) < DECISIVE and b"\n" not in begun

    def gave(self, transport: Any, begun: bytes) -> bool:
        """True if the request that begins so belongs to the other processes, and they have its connection now. An
        encrypted connection stays, and so does each while the channel is full."""
        return (_CALL.match(begun) is not None) != self._gateway and self.passed_on(transport, begun)

    def passed_on(self, transport: Any, begun: bytes) -> bool:
        """True if the processes of the other kind have the connection now, for any request: they hand one that
        is not theirs back, to another process than this one once it has stopped to receive."""
        if transport.get_write_buffer_size() or transport.get_extra_info("sslcontext"):
            return False
        try:
            socket.send_fds(self._channel, [begun], [transport.get_extra_info("socket").fileno()])
        except OSError:
            return False
        transport.abort()  # closes our copy; the connection itself goes on
        return True

    def receive(self, make: Callable[[bytes], asyncio.Protocol]) -> None:
        """Takes connections from now on. ``make``: a protocol, of what had arrived of the request."""
        loop = asyncio.get_running_loop()
        taking: set[asyncio.Task[Any]] = set()

        def take() -> None:
            try:
                begun, files, _, _ = socket.recv_fds(self._channel, LONGEST, 1)
            except OSError:  # another process was faster, or this process has no file left
                return
            if files:
                connection = socket.socket(fileno=files[0])
                task = loop.create_task(loop.connect_accepted_socket(lambda: make(begun), connection))
                taking.add(task)
                task.add_done_callback(taking.discard)

        loop.add_reader(self._channel, take)

    def stop(self) -> None:
        """Leaves what comes to the next process."""
        asyncio.get_running_loop().remove_reader(self._channel)


@cache
def connection_handover() -> ConnectionHandover | None:
    """That of this process; None outside `manage.py up`."""
    if not (number := os.environ.get(CHANNEL)):
        return None
    return ConnectionHandover(socket.socket(fileno=int(number)), gateway=is_gateway())
