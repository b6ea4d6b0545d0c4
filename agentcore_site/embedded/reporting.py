"""Reports the processes of one ``manage.py up`` to the database: for the page of the system (``HostProcess``), and to
release the jobs of dead workers before their leases end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import psycopg

from agentcore_site.embedded.supervisor import ProcessState, is_alive
from agentcore_site.lib.host_ids import host_id, process_host_id

log = logging.getLogger(__name__)

SECONDS: Final = 5.0
FREED_SECONDS: Final = 1.0
# By the database's clock, so that clocks of hosts may differ: ages are reported, not times.
REPORT: Final = """
INSERT INTO jobs_hostprocess (place, name, host, pid, restarts, started_at, ticked_at, seen_at)
VALUES (%s, %s, %s, %s, %s, now() - make_interval(secs => %s), now() - make_interval(secs => %s), now())
ON CONFLICT (place, name) DO UPDATE SET host = EXCLUDED.host, pid = EXCLUDED.pid, restarts = EXCLUDED.restarts,
    started_at = EXCLUDED.started_at, ticked_at = EXCLUDED.ticked_at, seen_at = EXCLUDED.seen_at
"""
# Also rows of hosts without a report for a week: they will not come back by that name.
FORGET: Final = """
DELETE FROM jobs_hostprocess WHERE (place = %s AND NOT name = ANY(%s)) OR seen_at < now() - interval '7 days'
"""
EVERY_ROW: Final = "SET LOCAL agentcore.scope = '*'"  # a host works for all organisations
HOLDERS: Final = """
SELECT DISTINCT worker FROM jobs_job
WHERE status = 'running' AND lease_until > clock_timestamp() AND starts_with(worker, %s)
"""
FREE: Final = """
UPDATE jobs_job SET lease_until = clock_timestamp() - interval '1 millisecond'
WHERE status = 'running' AND lease_until > clock_timestamp() AND worker = ANY(%s)
"""


class Reporter:
    """Reports every few seconds, in a thread of its own. If the database is unavailable it continues when the database
    is back. ``role``: of several ``up`` on the data folder."""

    def __init__(self, url: str, data_dir: Path, role: str, states: Callable[[], Sequence[ProcessState]]) -> None:
        self._url, self._states = url, states
        self._place = f"{host_id(data_dir)}:{role or 'all'}"
        self._workers = f"{process_host_id(data_dir)}:"
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reporting", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Removes its rows: a stopped process is not a missing one."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(2 * SECONDS)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with psycopg.connect(
                    self._url, connect_timeout=3, autocommit=True, prepare_threshold=None, application_name="agentcore"
                ) as connection:
                    self._report_until_stopped(connection)
            except psycopg.Error as error:
                log.info("processes can't be reported to the database: %s", error)
                self._stopping.wait(SECONDS)

    def _report_until_stopped(self, connection: psycopg.Connection) -> None:
        """Raises psycopg.Error."""
        reported_at = -SECONDS
        while not self._stopping.is_set():
            if time.monotonic() - reported_at >= SECONDS:
                self.report(connection)
                reported_at = time.monotonic()
            self.free(connection)
            self._stopping.wait(FREED_SECONDS)
        connection.execute(FORGET, [self._place, []])

    def report(self, connection: psycopg.Connection) -> None:
        """Raises psycopg.Error."""
        states, host = self._states(), self._place.split(":")[0]
        with connection.cursor() as cursor:
            cursor.executemany(
                REPORT,
                [(self._place, one.name, host, one.pid, one.restarts, one.age, one.silent_for) for one in states],
            )
            cursor.execute(FORGET, [self._place, [state.name for state in states]])

    def free(self, connection: psycopg.Connection) -> None:
        """Ends the leases of dead workers of this host and folder; the next sweep sends wake messages for their jobs. A
        worker that is alive after all loses only its turn: the next attempt fences it off.

        Raises:
            psycopg.Error: the database is unavailable.
        """
        with connection.transaction():
            connection.execute(EVERY_ROW)
            holders = [name for (name,) in connection.execute(HOLDERS, [self._workers]).fetchall()]
            if dead := [name for name in holders if not is_alive(int(name.rsplit(":", 1)[1]))]:
                freed = connection.execute(FREE, [dead]).rowcount
                log.warning("%s jobs of workers that are gone are free: %s", freed, ", ".join(dead))
