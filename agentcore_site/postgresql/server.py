"""Whether a database server answers, asked on a connection of its own.

Every PostgreSQL answers at once to "do you speak TLS?", before a client has signed in. A pooler such as PgBouncer
answers that itself, also for a server that fell silent behind it: where a pooler is between, a statement is asked
instead. A pooler shows by the number of the session, which it makes up.
"""

from __future__ import annotations

import logging
import select
import socket
import struct
import threading
import time
from dataclasses import dataclass, field
from typing import Final

import psycopg
from psycopg import pq

from agentcore_site import env

log = logging.getLogger(__name__)

TLS_SECONDS: Final = 0.4  # for the answer about TLS
STATEMENT_SECONDS: Final = 0.6  # to sign in and to have a statement answered
KNOWN_SECONDS: Final = 0.5  # that an answer, or its absence, is believed
REPLICA_NAME: Final = "agentcore-replica"  # of sessions of the read replica, which is another server
TLS_REQUEST: Final = struct.pack("!ii", 8, 80877103)


@dataclass
class DatabaseServer:
    """One server, or the pooler before it. Threads that ask at once share the question.

    ``pooled``: whether a pooler is between; None until a connection has shown it. ``conninfo``: how a statement is
    asked, as libpq takes it; empty until the first connection.
    """

    host: str
    port: int
    pooled: bool | None = None
    conninfo: bytes = field(default=b"", repr=False)  # with the password
    _silent: bool = False
    _asked: float = -60.0
    _guard: threading.Lock = field(default_factory=threading.Lock)

    @property
    def was_silent(self) -> bool:
        """True if the server did not answer the last question, however long ago that was."""
        return self._silent

    @property
    def known_silent(self) -> bool:
        return self._silent and time.monotonic() - self._asked < KNOWN_SECONDS

    def answers(self) -> bool:
        with self._guard:
            if time.monotonic() - self._asked >= KNOWN_SECONDS:
                by_statement = self.conninfo and self.pooled is not False
                self._silent = not (statement_answered(self.conninfo) if by_statement else self._tls_answered())
                self._asked = time.monotonic()
            return not self._silent

    def _tls_answered(self) -> bool:
        local = self.host.startswith("/")
        link = socket.socket(socket.AF_UNIX) if local else None
        try:
            if link is None:
                link = socket.create_connection((self.host, self.port), TLS_SECONDS)
            else:
                link.settimeout(TLS_SECONDS)
                link.connect(f"{self.host}/.s.PGSQL.{self.port}")
            link.settimeout(TLS_SECONDS)
            link.sendall(TLS_REQUEST)
            return bool(link.recv(1))
        except OSError:
            return False
        finally:
            if link is not None:
                link.close()


_SERVERS: Final[dict[tuple[str, int], DatabaseServer]] = {}


def server_at(host: str, port: int) -> DatabaseServer:
    return _SERVERS.setdefault((host, port), DatabaseServer(host, port))


def server_named(name: str, server: DatabaseServer) -> None:
    """One server by its name and by its address: what is found of it is known by both."""
    _SERVERS[name, server.port] = server


def probe_conninfo(connection: pq.abc.PGconn) -> bytes:
    """Connection string for a probe beside this connection: DATABASE_PROBE_URL, or the connection's own parameters."""
    parameters = {one.keyword.decode(): one.val.decode() for one in connection.info if one.val}
    given = env.text("DATABASE_PROBE_URL")
    if given and parameters.get("application_name") != REPLICA_NAME:
        return given.encode()
    return psycopg.conninfo.make_conninfo("", **parameters).encode()


def statement_answered(conninfo: bytes, seconds: float = STATEMENT_SECONDS) -> bool:
    """Whether a new session has ``SELECT 1`` answered within ``seconds``."""
    deadline = time.monotonic() + seconds
    link = pq.PGconn.connect_start(conninfo)
    try:
        while (step := link.connect_poll()) != pq.PollingStatus.OK:
            if step == pq.PollingStatus.FAILED:
                raise psycopg.OperationalError(link.get_error_message())
            _wait(link.socket, deadline, write=step == pq.PollingStatus.WRITING)
        link.send_query(b"SELECT 1")
        while link.is_busy():
            _wait(link.socket, deadline)
            link.consume_input()
        result = link.get_result()
        return result is not None and result.status == pq.ExecStatus.TUPLES_OK
    except TimeoutError:
        return False
    except psycopg.Error as error:
        log.warning("whether the database server answers could not be asked: %s", error)
        return False
    finally:
        link.finish()


def _wait(descriptor: int, deadline: float, *, write: bool = False) -> None:
    """Raises:
    TimeoutError: nothing can be read (or written) until the deadline."""
    left = int(1000 * (deadline - time.monotonic()))
    poll = select.poll()  # select() refuses descriptors above 1,023
    poll.register(descriptor, select.POLLOUT if write else select.POLLIN)
    if left <= 0 or not poll.poll(left):
        raise TimeoutError
