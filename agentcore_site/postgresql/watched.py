"""A connection that does not wait for a server that fell silent: stopped, swapped out, or cut off without a goodbye.

A slow statement and a silent server look alike to a client that waits. So after a second without an answer the server
is asked something that every PostgreSQL answers at once, on a connection of its own: "do you speak TLS?". A server that
answers may take all the time that it needs; one that does not has the connection closed.

A request has two seconds for all of it. Workers and commands have more: their connections (``PatientConnection``)
outlast a server that is slow to start a session because the machine is busy, and give up one that stays silent.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, Final, TypeVar

import psycopg

T = TypeVar("T")
CONNECT_SECONDS: Final = 5  # for a new connection
ANSWER_SECONDS: Final = 0.4  # for its answer
KNOWN_SECONDS: Final = 0.5  # that an answer, or its absence, is believed
INTERVAL: Final = 0.1  # between two looks at the clock
TLS_REQUEST: Final = struct.pack("!ii", 8, 80877103)
SILENT: Final = "the database server does not answer"


@dataclass
class Server:
    """Whether one server answers. Threads that ask at once share the question."""

    host: str
    port: int
    _silent: bool = False
    _asked: float = -60.0
    _guard: threading.Lock = field(default_factory=threading.Lock)

    @property
    def known_silent(self) -> bool:
        return self._silent and time.monotonic() - self._asked < KNOWN_SECONDS

    def answers(self) -> bool:
        with self._guard:
            if time.monotonic() - self._asked >= KNOWN_SECONDS:
                self._silent = not self._asks()
                self._asked = time.monotonic()
            return not self._silent

    def _asks(self) -> bool:
        local = self.host.startswith("/")
        link = socket.socket(socket.AF_UNIX) if local else None
        try:
            if link is None:
                link = socket.create_connection((self.host, self.port), ANSWER_SECONDS)
            else:
                link.settimeout(ANSWER_SECONDS)
                link.connect(f"{self.host}/.s.PGSQL.{self.port}")
            link.settimeout(ANSWER_SECONDS)
            link.sendall(TLS_REQUEST)
            return bool(link.recv(1))
        except OSError:
            return False
        finally:
            if link is not None:
                link.close()


@lru_cache(maxsize=16)
def server_at(host: str, port: int) -> Server:
    return Server(host, port)


class WatchedConnection(psycopg.Connection[Any]):
    """Raises ``OperationalError`` where its server is silent; a pool makes connections of this class.

    ``patience``: seconds without an answer before the server is asked. ``silence``: seconds for which it has to be
    silent to that question too.
    """

    patience: ClassVar[float] = 0.8
    silence: ClassVar[float] = 0.0
    _silent_since: float | None = None

    def wait(self, gen: Generator[Any, Any, T], interval: float = INTERVAL, timeout: float | None = None) -> T:
        return super().wait(self._watched(gen), interval=min(interval, INTERVAL), timeout=timeout)

    def _watched(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        """``gen``, told of the time: psycopg sends it 0 where nothing came within the interval."""
        server = server_at(self.info.hostaddr or self.info.host, self.info.port)
        began = time.monotonic()
        if server.known_silent and not self.silence:
            self.pgconn.finish()
            raise psycopg.OperationalError(SILENT)
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and self._gives_up(server, began):
                    raise psycopg.OperationalError(SILENT)
                wanted = gen.send(ready)
        except StopIteration as done:
            answer: T = done.value
            return answer

    def _gives_up(self, server: Server, began: float) -> bool:
        now = time.monotonic()
        if not server.known_silent and (now - began < self.patience or server.answers()):
            self._silent_since = None
            return False
        self._silent_since = self._silent_since or now
        if now - self._silent_since < self.silence:
            return False
        self.pgconn.finish()
        return True


class PatientConnection(WatchedConnection):
    """For workers and commands, which have no pool: a silent server is given up after about eight seconds."""

    patience = 5.0
    silence = 3.0
