"""The services of one data folder: PostgreSQL, Valkey and, if enabled, NATS and the warehouse, each if no address is
given.

Used by `up` and by the tests.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import IO

from agentcore_site import env
from agentcore_site.embedded import nats, postgres, valkey, warehouse
from agentcore_site.embedded.nats import NatsServer
from agentcore_site.embedded.ports import free_port
from agentcore_site.embedded.postgres import Postgres
from agentcore_site.embedded.rolling import lock_path
from agentcore_site.embedded.supervisor import Process, Supervisor
from agentcore_site.embedded.valkey import Valkey
from agentcore_site.embedded.warehouse import EmbeddedWarehouse
from agentcore_site.lib.service_paths import CannotStart, place_for


class Stack:
    """Starts the embedded services of ``data_dir`` and writes their addresses to ``run/services.json``.

    ``any_port``: take free ports, for tests that start several stacks at once.
    """

    def __init__(
        self,
        data_dir: Path,
        say: Callable[[str], None],
        tuning: dict[str, str] | None = None,
        *,
        any_port: bool = False,
        role: str = "",
    ) -> None:
        """``role``: of several processes that share the folder, each with a role of its own and no service.

        Raises:
            CannotStart: the folder can't be written.
        """
        place = next(one for one in (data_dir, *data_dir.parents) if one.exists())
        if not os.access(place, os.W_OK):
            raise CannotStart(f"{data_dir} can't be written. Make it writable, or set DATA_DIR to a folder of yours.")
        self.data_dir, self.say, self.tuning, self.any_port = data_dir, say, tuning, any_port
        self.place = place_for(data_dir)
        self.run_folder = data_dir / "run"
        self.run_folder.mkdir(exist_ok=True, mode=0o700)
        (self.run_folder / "log").mkdir(exist_ok=True)
        self.secrets = data_dir / "secrets"
        self.secrets.mkdir(exist_ok=True, mode=0o700)
        to_stdout = env.among("LOGS", ("files", "stdout")) == {"stdout"}
        self.supervisor = Supervisor(self.run_folder / "log", say, to_stdout=to_stdout)
        self._lock: IO[str] | None = None
        self.role = role

    def lock(self) -> None:
        """Takes the data folder for this process.

        Raises:
            CannotStart: another `up` has it.
        """
        path = lock_path(self.run_folder, self.role)
        self._lock = open(path, "a+", encoding="utf-8")  # noqa: SIM115  (held until we end)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.seek(0)
            pid = self._lock.read().strip() or "?"
            raise CannotStart(
                f"AgentCore is already up on {self.data_dir} (pid {pid}). Use that one, stop it, or set DATA_DIR."
            ) from None
        self._lock.seek(0)
        self._lock.truncate()
        self._lock.write(str(os.getpid()))
        self._lock.flush()

    def start(self) -> dict[str, str]:
        """Starts each service without an address. Returns the addresses: of the database as the application and as the
        owner of the tables, and of Valkey."""
        taken: set[int] = set()
        urls = self.start_database(taken) | {"redis_url": env.text("REDIS_URL")}
        if not urls["redis_url"]:
            port = self._port("Valkey", valkey.PREFERRED_PORT, taken)
            store = Valkey(self.place, self.secrets, port)
            store.prepare()
            self._launch(store.name, store.command(), store.ready, signal.SIGTERM)
            urls["redis_url"] = store.url()
        if given := env.text("NATS_URL"):
            urls["nats_url"] = given
        elif env.boolean("EVENTS"):
            urls |= self.start_events(taken)
        if given := env.text("CLICKHOUSE_URL"):
            urls["clickhouse_url"] = given
        elif env.boolean("WAREHOUSE"):
            urls["clickhouse_url"] = self.start_warehouse(taken)
        if not self.role:
            env.private_file(self.run_folder / "services.json", json.dumps(urls))
        return urls

    def start_database(self, taken: set[int] | None = None) -> dict[str, str]:
        """Starts PostgreSQL alone, if it has no address yet. Returns its addresses as the application and the owner."""
        given = env.text("DATABASE_URL")
        if given:
            return {"database_url": given, "database_owner_url": env.text("DATABASE_OWNER_URL") or given}
        port = self._port("PostgreSQL", postgres.PREFERRED_PORT, set() if taken is None else taken)
        server = Postgres(self.place, self.secrets, port, self.tuning)
        server.prepare()
        self._launch(server.name, server.command(), server.ready, signal.SIGINT)
        server.create_database()
        server.create_application_role()
        return {"database_url": server.url(role=postgres.APPLICATION), "database_owner_url": server.url()}

    def start_events(self, taken: set[int] | None = None) -> dict[str, str]:
        """Starts NATS. Returns its address, the file of its accounts, and the file of its process id."""
        server = NatsServer(self.place, self.secrets, self._port("NATS", nats.PREFERRED_PORT, taken or set()))
        server.prepare()
        self._launch(server.name, server.command(), server.ready, signal.SIGTERM)
        return {
            "nats_url": server.url(),
            "nats_accounts_file": str(server.accounts),
            "nats_pid_file": str(server.pid_file),
            "nats_store_mb": str(server.store_mb()),
        }

    def start_warehouse(self, taken: set[int] | None = None) -> str:
        """Starts the warehouse. Returns its address."""
        port = self._port("the warehouse", warehouse.PREFERRED_PORT, taken or set())
        server = EmbeddedWarehouse(self.data_dir, self.secrets, port)
        secret = {"WAREHOUSE_PASSWORD": server.password}
        self.supervisor.start(
            Process(server.name, server.command(), server.ready, environment=secret, cwd=str(env.ROOT))
        )
        return server.url()

    def stop(self) -> None:
        self.supervisor.stop()
        if not self.role:
            (self.run_folder / "services.json").unlink(missing_ok=True)
        if self._lock is not None:
            self._lock.close()

    def _port(self, name: str, preferred: int, taken: set[int]) -> int:
        port = free_port(0 if self.any_port else preferred, taken)
        taken.add(port)
        if port != preferred and not self.any_port:
            self.say(f"port {preferred} is busy; {name} takes {port}")
        return port

    def _launch(self, name: str, command: list[str], ready: Callable[[], bool], stop: signal.Signals) -> None:
        self.supervisor.start(Process(name, command, ready, user=self.place.user(name), stop_signal=stop))
