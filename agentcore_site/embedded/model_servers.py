"""Keeps the model servers running that people asked for in the console (``EndpointServer``): one process a model and
organisation. It reads what is wanted from the database, and reports there what became of it."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import psycopg
from psycopg.rows import class_row

from agentcore_site import env
from agentcore_site.embedded.ports import answers, free_port
from agentcore_site.embedded.reporting import EVERY_ROW
from agentcore_site.embedded.supervisor import Process, Running, Supervisor, resident_memory
from agentcore_site.lib.own_models import RANDOM, own_models, server_token

log = logging.getLogger(__name__)

TURN_SECONDS: Final = 1.0
CALM_SECONDS: Final = 5.0  # while no server is wanted and none runs
AWAY_SECONDS: Final = 3.0  # after the database did not answer
MOST_FAILURES: Final = 5  # ends of a process, one after the other, before it was ever ready
READY_SECONDS: Final = 300.0  # torch loads, then the model
MEMORY_MB: Final = 300  # of an update or a batch of answers, beside the weights
MOST_REASON: Final = 300
READ: Final = (
    "SELECT endpoint_id, organization_id, source, port, wanted, state FROM experiences_endpointserver WHERE place = %s"
)
BEGIN: Final = """
UPDATE experiences_endpointserver SET state = 'starting', reason = '', restarts = 0, memory = NULL, adapters = NULL,
    tokens_per_second = NULL, ready_at = NULL, seen_at = NULL WHERE place = %s AND wanted
"""
REPORT: Final = """
UPDATE experiences_endpointserver SET state = %(state)s::text, reason = %(reason)s, restarts = %(restarts)s,
    memory = %(memory)s, adapters = %(adapters)s, seen_at = now(),
    tokens_per_second = COALESCE(%(speed)s, tokens_per_second),
    ready_at = CASE WHEN %(state)s::text = 'ready' THEN COALESCE(ready_at, now()) END
WHERE endpoint_id = %(id)s AND wanted
"""
MOVE_SERVER: Final = "UPDATE experiences_endpointserver SET port = %s WHERE endpoint_id = %s"
MOVE_ENDPOINT: Final = "UPDATE experiences_modelendpoint SET base_url = %s WHERE id = %s AND base_url = %s"


class WantedServer(NamedTuple):
    endpoint_id: Any
    organization_id: Any
    source: str
    port: int
    wanted: bool
    state: str

    @property
    def process_name(self) -> str:
        return f"model-{self.endpoint_id}"


class ModelServers:
    """Works in a thread of its own until ``stop``, with a supervisor of its own: a model that does not start is no
    fault of the site. ``place``: the id of this host and data folder."""

    def __init__(self, url: str, data_dir: Path, place: str, supervisor: Supervisor) -> None:
        self._url, self._data_dir, self._place, self.supervisor = url, data_dir, place, supervisor
        self._reasons: dict[str, str] = {}
        self._unready: dict[str, int] = {}  # ends since it was ready last
        self._ends: dict[str, int] = {}  # process ids whose end was counted
        self._drawn: dict[str, tuple[int, float]] = {}
        self._busy = True  # a server is wanted or runs
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="model servers", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        connection: psycopg.Connection | None = None
        try:
            while not self._stopping.wait(TURN_SECONDS if self._busy else CALM_SECONDS):
                self.supervisor.watch()
                try:
                    if connection is None:
                        connection = self._connect()
                    self.turn(connection)
                except psycopg.Error as error:
                    log.info("model servers can't be read from the database: %s", error)
                    connection = None
                    self._stopping.wait(AWAY_SECONDS)
        finally:
            self.supervisor.stop()
            if connection is not None:
                with suppress(psycopg.Error):
                    self._do(connection, BEGIN, [self._place])
                connection.close()

    def _connect(self) -> psycopg.Connection:
        """Raises psycopg.Error."""
        connection = psycopg.connect(
            self._url, connect_timeout=3, autocommit=True, prepare_threshold=None, application_name="agentcore"
        )
        if not self.supervisor.running:
            self._do(connection, BEGIN, [self._place])
        return connection

    def turn(self, connection: psycopg.Connection) -> None:
        """Starts and stops what has to be, and reports the rest. Raises psycopg.Error."""
        with connection.transaction(), connection.cursor(row_factory=class_row(WantedServer)) as cursor:
            cursor.execute(EVERY_ROW)
            rows = cursor.execute(READ, [self._place]).fetchall()
        wanted = {row.process_name: row for row in rows if row.wanted and row.state != "failed"}
        running = {one.process.name: one for one in self.supervisor.running}
        self._busy = bool(wanted or running)
        for name in running.keys() - wanted.keys():
            self._drop(name)
        for name, row in wanted.items():
            if name in running:
                self._report(connection, row, running[name])
            elif not self.supervisor.is_leaving(name):
                self._add(connection, row)

    def _add(self, connection: psycopg.Connection, row: WantedServer) -> None:
        model = own_models().get(row.source)
        if model is None:
            gone = f"The model {row.source} is not in the site's folder of models any more."
            self._write(connection, row, "failed", reason=gone)
            return
        port = free_port(row.port)
        if port != row.port:
            self._do(connection, MOVE_SERVER, [port, row.endpoint_id])
            self._do(connection, MOVE_ENDPOINT, [address(port), row.endpoint_id, address(row.port)])
        token = server_token(self._data_dir, row.organization_id, row.source)
        kept = self._data_dir / "weights" / "servers" / str(row.endpoint_id)
        process = server_process(row.process_name, model.given, port, token, "--name", model.name, "--kept", str(kept))
        process.heartbeats = True
        self.supervisor.add(process)

    def _drop(self, name: str) -> None:
        self.supervisor.drop(name)
        for known in (self._reasons, self._unready, self._ends, self._drawn):
            known.pop(name, None)

    def _report(self, connection: psycopg.Connection, row: WantedServer, running: Running) -> None:
        name, alive = row.process_name, running.is_alive
        if running.was_ready and alive:
            self._unready[name] = 0
        elif not alive and self._ends.get(name) != running.handle.pid:
            self._ends[name] = running.handle.pid
            self._unready[name] = self._unready.get(name, 0) + 1
            self._reasons[name] = self._reason(running)
        if self._unready.get(name, 0) >= MOST_FAILURES:
            reason = self._reasons[name]
            self._drop(name)
            self._write(connection, row, "failed", reason=reason)
            return
        ready = alive and running.was_ready
        health = self._health(running) if ready else {}
        state = "ready" if ready else "starting" if name not in self._ends else "restarting"
        self._write(
            connection,
            row,
            state,
            reason=self._reasons.get(name, ""),
            restarts=next((one.restarts for one in self.supervisor.states() if one.name == name), 0),
            memory=resident_memory(running.handle.pid) if alive else None,
            adapters=len(health.get("loaded", ())) if health else None,
            speed=self._speed(name, health),
        )

    def _health(self, running: Running) -> dict[str, Any]:
        """The server's report on itself; empty where it does not answer in time."""
        # Imported here: httpx takes 11 MB, and few sites run model servers.
        from agentcore_site.lib.http_client import http_client_of

        client = http_client_of(address(int(running.process.environment["MODEL_SERVER_PORT"])))
        try:
            found = json.loads(client.exchange("GET", "/health", seconds=2).body)
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _speed(self, name: str, health: dict[str, Any]) -> float | None:
        """Tokens per second of the answers since the last report; None where there were none."""
        if not health:
            return None
        before, now = self._drawn.get(name, (0, 0.0)), (health.get("tokens", 0), health.get("seconds", 0.0))
        self._drawn[name] = now
        tokens, seconds = now[0] - before[0], now[1] - before[1]
        return tokens / seconds if tokens > 0 and seconds > 0 else None

    def _reason(self, running: Running) -> str:
        """Why a process ended: its signal, or the last line that it wrote."""
        code, name = running.handle.returncode, running.process.name
        if running.was_killed:
            return "It did not answer for a long time and was killed."
        if code <= 0:
            return f"It was ended by signal {-code}." if code else "It was ended."
        lines = [line.strip() for line in self.supervisor.tail(name).splitlines() if line.strip()]
        return f"It ended with status {code}: {lines[-1] if lines else 'it wrote nothing'}"[:MOST_REASON]

    def _write(self, connection: psycopg.Connection, row: WantedServer, state: str, **values: Any) -> None:
        empty = {"reason": "", "restarts": 0, "memory": None, "adapters": None, "speed": None}
        self._do(connection, REPORT, {"id": row.endpoint_id, "state": state, **empty, **values})

    @staticmethod
    def _do(connection: psycopg.Connection, statement: str, values: Any) -> None:
        with connection.transaction():
            connection.execute(EVERY_ROW)
            connection.execute(statement, values)  # type: ignore[call-overload]  # psycopg wants a literal


def address(port: int) -> str:
    return f"http://127.0.0.1:{port}/v1"


def server_process(name: str, model: str, port: int, token: str, *options: str) -> Process:
    """A model server on this machine (docs/weights.md)."""
    command = [sys.executable, str(env.ROOT / "manage.py"), "model_server", model, "--port", str(port)]
    command += ["--memory", str(MEMORY_MB), "--dtype", "float32" if model == RANDOM else "auto", *options]
    # The model made at random is too small for threads; with one its sums repeat bit for bit.
    threads = 1 if model == RANDOM else os.cpu_count() or 1
    # Threads that wait actively take the cores from other processes of the site.
    lean = {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE", "MALLOC_ARENA_MAX": "2"}
    given = {"HF_HUB_OFFLINE": "1", "WEIGHTS_TOKEN": token, "MODEL_SERVER_PORT": str(port)}
    return Process(
        name,
        command,
        ready=lambda: answers(port),
        ready_seconds=READY_SECONDS,
        environment=lean | given,
        cwd=str(env.ROOT),
    )
