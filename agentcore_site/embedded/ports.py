"""Free ports, and waiting for one to answer."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def free_port(preferred: int, taken: set[int] | None = None) -> int:
    """``preferred`` if nobody has it, else one that the system gives (always for 0: any port)."""
    taken = taken or set()
    if preferred and preferred not in taken and is_free(preferred):
        return preferred
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port not in taken:
            return port


def wait_until(ready: Callable[[], bool], seconds: float, every: float = 0.05) -> bool:
    """Whether ``ready`` became true in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if ready():
            return True
        time.sleep(every)
    return False


def answers(port: int, host: str = "127.0.0.1") -> bool:
    try:
        with socket.create_connection((host, port), timeout=0.5):
            return True
    except OSError:
        return False
