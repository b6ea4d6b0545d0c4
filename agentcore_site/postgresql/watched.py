"""A connection that does not wait for a server that fell silent: stopped, swapped out, or cut off without a goodbye.

A slow statement and a silent server look alike to a client that waits. So after a second without an answer the server
is asked something else, on a connection of its own (``DatabaseServer.answers``). One that answers may take all the time
that it needs; one that does not has the connection closed.

A request has two seconds for all of it. Workers and commands have more: their connections (``PatientConnection``)
outlast a server that is slow to start a session because the machine is busy, and give up one that stays silent.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any, ClassVar, Final, Self, TypeVar

import psycopg
from psycopg.rows import tuple_row

from agentcore_site.postgresql.scoped import ScopedConnection
from agentcore_site.postgresql.server import DatabaseServer, probe_conninfo, server_at, server_named

T = TypeVar("T")
CONNECT_SECONDS: Final = 5  # for a new connection
INTERVAL: Final = 0.1  # between two looks at the clock
SILENT: Final = "the database server does not answer"


class WatchedConnection(ScopedConnection):
    """Raises ``OperationalError`` where its server is silent; a pool makes connections of this class.

    ``patience``: seconds without an answer before the server is asked. ``silence``: seconds for which it has to be
    silent to that question too.
    """

    patience: ClassVar[float] = 0.8
    silence: ClassVar[float] = 0.0
    _silent_since: float | None = None

    @classmethod
    def connect(cls, conninfo: str = "", **kwargs: Any) -> Self:
        made = super().connect(conninfo, **kwargs)
        made._meet_server()
        return made

    @property
    def server(self) -> DatabaseServer:
        return server_at(self.info.hostaddr or self.info.host, self.info.port)

    def _meet_server(self) -> None:
        """Finds out once in each process whether a pooler is between."""
        server = self.server
        server_named(self.info.host, server)
        if server.pooled is not None:
            return
        server.conninfo = probe_conninfo(self.pgconn)
        with self.cursor(row_factory=tuple_row) as cursor:
            [session] = cursor.execute("SELECT pg_backend_pid()").fetchone() or [None]
        if not self.autocommit:
            self.rollback()
        server.pooled = session != self.info.backend_pid

    def wait(self, gen: Generator[Any, Any, T], interval: float = INTERVAL, timeout: float | None = None) -> T:
        return super().wait(self._watched(gen), interval=min(interval, INTERVAL), timeout=timeout)

    def _watched(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        """``gen``, with a check of the time: psycopg sends it 0 where nothing came within the interval."""
        server = self.server
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

    def _gives_up(self, server: DatabaseServer, began: float) -> bool:
        now = time.monotonic()
        # What was silent a moment ago is asked at once: a request that tries a second connection has no time to spare.
        patience = 0.0 if server.was_silent and not self.silence else self.patience
        if not server.known_silent and (now - began < patience or server.answers()):
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
