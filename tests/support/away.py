"""The real web server behind ways that can be cut or frozen, and a database server that is stopped."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from django.db import connection

from tests.support.proxy import Proxy
from tests.support.workers import Fleet, environment


@dataclass(frozen=True)
class Cut:
    """A site whose database and broker can go away; ``url`` is the site's."""

    url: str
    database: Proxy
    broker: Proxy


@contextmanager
def site_behind_proxies() -> Iterator[Cut]:
    fleet = Fleet()
    with ExitStack() as stack:
        stack.callback(fleet.stop)
        database = stack.enter_context(Proxy(environment()["DATABASE_URL"]))
        broker = stack.enter_context(Proxy(os.environ["REDIS_URL"]))
        port = fleet.web(DATABASE_URL=database.url, REDIS_URL=broker.url, DB_POOL="12")
        yield Cut(f"http://127.0.0.1:{port}", database, broker)


@contextmanager
def stopped_server() -> Iterator[None]:
    """SIGSTOP for PostgreSQL with all its sessions, as a host that swaps or a disk that hangs does to it. Sessions of
    the test itself are stopped too."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        [session] = cursor.fetchone()
    postmaster = _parent(session)
    if not _name(session) == _name(postmaster) == "postgres":  # of another machine, or of a container
        pytest.skip("PostgreSQL's processes are not of this machine")
    stopped: list[int] = []
    try:
        for pid in (postmaster, *children_of(postmaster)):
            os.kill(pid, signal.SIGSTOP)
            stopped.append(pid)
        yield
    finally:
        for pid in reversed(stopped):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _name(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    return ""


def _parent(pid: int) -> int:
    """0 where there is no such process."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    return 0


def children_of(parent: int) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and _parent(int(folder.name)) == parent:
            found.append(int(folder.name))
    return found
