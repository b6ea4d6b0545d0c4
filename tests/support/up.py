"""``manage.py up`` on a data folder of a test, as people start it: nothing but the folder and the port are set."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psycopg

from agentcore_site import env

GIVEN = ("DATABASE_URL", "DATABASE_OWNER_URL", "REDIS_URL")
OURS = (*GIVEN, "DATABASE_AS_OWNER", "JOB_LEASE_SECONDS", "JOB_SWEEP_SECONDS", "LOG_LEVEL", "TRAINING_JOBS_PER_USER")


def environment(data: Path, **more: str) -> dict[str, str]:
    """This process's environment without what the test run itself set."""
    return {name: value for name, value in os.environ.items() if name not in OURS} | {"DATA_DIR": str(data)} | more


def manage(data: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a command on the data folder."""
    command = [sys.executable, str(env.ROOT / "manage.py"), *arguments]
    return subprocess.run(command, env=environment(data), cwd=env.ROOT, capture_output=True, text=True, timeout=240)


class Up:
    """A running ``manage.py up``. Stop it with ``stop``."""

    def __init__(self, data: Path, *options: str, **more: str) -> None:
        self.data, self.path = data, data.with_suffix(".log")
        self.log = open(self.path, "wb")  # noqa: SIM115  (held until it is stopped)
        command = [sys.executable, str(env.ROOT / "manage.py"), "up", *options]
        self.process = subprocess.Popen(command, env=environment(data, **more), stdout=self.log, stderr=self.log)

    def urls(self) -> dict[str, str]:
        body: dict[str, str] = json.loads((self.data / "run" / "services.json").read_text(encoding="utf-8"))
        return body

    def rows(self, query: str, *arguments: Any) -> list[Any]:
        with psycopg.connect(self.urls()["database_url"], connect_timeout=5, autocommit=True) as connection:
            connection.execute("SET agentcore.scope = '*'")
            return connection.execute(query, arguments).fetchall()  # type: ignore[arg-type]

    def until(self, query: str, seconds: float = 180) -> Any:
        """The first row of the answer, once its first value is true."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.tail()
            try:
                if (rows := self.rows(query)) and rows[0][0]:
                    return rows[0]
            except (OSError, psycopg.Error, ValueError):
                pass  # it is starting, or a fault of the test has its database
            time.sleep(0.3)
        raise AssertionError(f"not within {seconds:.0f} s: {query}\n{self.tail()}")

    def tail(self) -> str:
        return self.path.read_text(encoding="utf-8", errors="replace")[-3000:]

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(90)
        self.log.close()
