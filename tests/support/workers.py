"""Real processes for tests: Celery workers, beat and the web server, on the test's own database and broker."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from django.db import connection

from agentcore_site import env
from agentcore_site.embedded.ports import answers, free_port, wait_until
from agentcore_site.lib.queues import JOB_QUEUES, SHORT_TASKS
from tests.support.warm_start import Forked, WarmStart

Started = subprocess.Popen[bytes] | Forked


def environment() -> dict[str, str]:
    """This process's environment, pointed at the test's database."""
    database = {
        name: urlunsplit(urlsplit(os.environ[name])._replace(path=f"/{connection.settings_dict['NAME']}"))
        for name in ("DATABASE_URL", "DATABASE_OWNER_URL")
        if name in os.environ
    }
    return (
        os.environ
        | database
        | {
            "C_FORCE_ROOT": "1",
            "MALLOC_ARENA_MAX": "2",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
    )


class Fleet:
    """Worker processes. Each is its own process group, so that ``kill`` takes all of it. With ``warm`` they begin
    loaded, where that pays."""

    def __init__(self, warm: WarmStart | None = None) -> None:
        self.processes: list[Started] = []
        self._warm = warm
        self._folder = Path(tempfile.mkdtemp(prefix="fleet-"))
        self.log = self._folder / "log"

    def worker(self, *, concurrency: int = 1, **extra: str) -> Started:
        queues = ["--queues", ",".join((*JOB_QUEUES, SHORT_TASKS)), "--concurrency", str(concurrency)]
        name = ["--hostname", f"w{len(self.processes)}-{os.getpid()}@%h"]
        quiet = ["--loglevel", "WARNING", "--without-mingle", "--without-gossip"]
        return self._spawn(["-m", "celery", "-A", "agentcore_site.celery", "worker", *queues, *name, *quiet], extra)

    def beat(self, **extra: str) -> Started:
        schedule = str(self._folder / f"schedule-{len(self.processes)}")
        command = ["-m", "celery", "-A", "agentcore_site.celery", "beat", "--pidfile", "", "--schedule", schedule]
        return self._spawn([*command, "--loglevel", "WARNING"], extra)

    def web(self, **extra: str) -> int:
        port = free_port(0)
        command = ["-m", "agentcore_site.web_server", "agentcore_site.asgi:application", "--port", str(port)]
        ends = ["--lifespan", "on", "--timeout-graceful-shutdown", "2"]
        self._spawn([*command, *ends, "--log-level", "warning"], {"DB_POOL": "8"} | extra)
        assert wait_until(lambda: answers(port), 90), self.log.read_text()[-3000:]
        return port

    def feedback_loop(self, *arguments: str, **extra: str) -> Started:
        return self._spawn([str(env.ROOT / "manage.py"), "feedback_loop", *arguments], extra)

    def kill(self, process: Started) -> None:
        """kill -9 of the process and of every child."""
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
        self.processes.remove(process)

    def stop(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(10)
        self.processes.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _spawn(self, arguments: list[str], extra: dict[str, str]) -> Started:
        process = self._warm and self._warm.process(arguments, environment() | extra, str(self.log))
        if process is None:
            process = self._cold(arguments, environment() | extra)
        self.processes.append(process)
        return process

    def _cold(self, arguments: list[str], given: dict[str, str]) -> subprocess.Popen[bytes]:
        with open(self.log, "ab") as log:
            return subprocess.Popen(
                [sys.executable, *arguments],
                cwd=env.ROOT,
                env=given,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


@dataclass(frozen=True)
class LiveSite:
    url: str
    fleet: Fleet


@contextmanager
def live_site_running(warm: WarmStart | None = None) -> Iterator[LiveSite]:
    fleet = Fleet(warm)
    try:
        port = fleet.web()
        fleet.worker()
        fleet.beat()
        yield LiveSite(f"http://127.0.0.1:{port}", fleet)
    finally:
        fleet.stop()


def eventually(what: Callable[[], Any], *, seconds: float = 60, every: float = 0.1, why: str = "") -> Any:
    """The first truthy answer of ``what``, or a failure that says what was waited for."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := what():
            return value
        time.sleep(every)
    raise AssertionError(f"not within {seconds:.0f} s: {why or what}")
