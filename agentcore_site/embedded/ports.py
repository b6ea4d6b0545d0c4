"""Free ports, and waiting for one to answer."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable
from typing import Final

BACKLOG: Final = 2048  # connections that wait for a process; the system may allow fewer

# Ports that this process has chosen, each with the socket that keeps others from choosing it too.
_reserved: dict[int, socket.socket] = {}


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def free_port(preferred: int, taken: set[int] | None = None) -> int:
    """``preferred`` if it is free, else one from the system (always for 0: any port). Until this process ends no other
    caller gets the same port: between the choice and its server's start lie seconds."""
    taken = taken or set()
    if preferred and preferred not in taken and is_free(preferred) and _reserve(preferred):
        return preferred
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port not in taken and _reserve(port):
            return port


def _reserve(port: int) -> bool:
    """Takes a name in the system's list of sockets, which ends with this process; only Linux has such names."""
    if port in _reserved or sys.platform != "linux":
        return True
    name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        name.bind(f"\0agentcore.port.{port}")
    except OSError:
        name.close()
        return False
    _reserved[port] = name
    return True


def wait_until(ready: Callable[[], bool], seconds: float, every: float = 0.05) -> bool:
    """True if ``ready`` became true in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if ready():
            return True
        time.sleep(every)
    return False


def listener(host: str, port: int) -> socket.socket:
    """A socket that listens, for processes to inherit: while none of them runs, connections wait.

    Raises:
        OSError: the port is taken, or the host has no such address.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=BACKLOG)


def answers(port: int, host: str = "127.0.0.1") -> bool:
    try:
        with socket.create_connection((host, port), timeout=0.5):
            return True
    except OSError:
        return False
