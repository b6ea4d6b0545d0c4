"""Tells the database of the processes of one ``manage.py up``, for the page of the system (``HostProcess``)."""

from __future__ import annotations

import hashlib
import logging
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import psycopg

from agentcore_site.embedded.supervisor import ProcessState

log = logging.getLogger(__name__)

SECONDS: Final = 5.0
# By the database's clock, so that those of hosts may differ: ages are told, and no times.
TELL: Final = """
INSERT INTO jobs_hostprocess (place, name, host, pid, restarts, started_at, ticked_at, seen_at)
VALUES (%s, %s, %s, %s, %s, now() - make_interval(secs => %s), now() - make_interval(secs => %s), now())
ON CONFLICT (place, name) DO UPDATE SET host = EXCLUDED.host, pid = EXCLUDED.pid, restarts = EXCLUDED.restarts,
    started_at = EXCLUDED.started_at, ticked_at = EXCLUDED.ticked_at, seen_at = EXCLUDED.seen_at
"""
# Also those of hosts that were not heard of for a week: they will not come back by that name.
FORGET: Final = """
DELETE FROM jobs_hostprocess WHERE (place = %s AND NOT name = ANY(%s)) OR seen_at < now() - interval '7 days'
"""


def place_of(data_dir: Path, role: str = "") -> str:
    """The name of one ``up``: the same after it was started anew on its data folder."""
    folder = hashlib.sha256(str(data_dir).encode()).hexdigest()[:12]
    return f"{socket.gethostname()[:90]}:{folder}:{role or 'all'}"


class Reporter:
    """Tells every few seconds, in a thread of its own. A database that is away is told when it is back."""

    def __init__(self, url: str, place: str, states: Callable[[], Sequence[ProcessState]]) -> None:
        self._url, self._place, self._states = url, place, states
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reporting", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Takes its rows away: what was stopped is not missing."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(2 * SECONDS)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with psycopg.connect(
                    self._url, connect_timeout=3, autocommit=True, prepare_threshold=None, application_name="agentcore"
                ) as connection:
                    self._tell_until_stopped(connection)
            except psycopg.Error as error:
                log.info("the database is not told of processes: %s", error)
                self._stopping.wait(SECONDS)

    def _tell_until_stopped(self, connection: psycopg.Connection) -> None:
        """Raises psycopg.Error."""
        while not self._stopping.is_set():
            self.tell(connection)
            self._stopping.wait(SECONDS)
        connection.execute(FORGET, [self._place, []])

    def tell(self, connection: psycopg.Connection) -> None:
        """Raises psycopg.Error."""
        states, host = self._states(), self._place.split(":")[0]
        with connection.cursor() as cursor:
            cursor.executemany(
                TELL,
                [(self._place, one.name, host, one.pid, one.restarts, one.age, one.silent_for) for one in states],
            )
            cursor.execute(FORGET, [self._place, [one.name for one in states]])
