"""Ends the database session of a job in one statement after the other, as a failover or an administrator does."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from django.db import connection

from agentcore_site.jobs import lifecycle
from agentcore_site.jobs.models import Job, Status
from agentcore_site.jobs.tasks import advance

METHODS = (
    (psycopg.Cursor, "execute"),
    (psycopg.Cursor, "executemany"),
    (psycopg.Cursor, "copy"),
    (psycopg.Copy, "write"),
    (psycopg.Copy, "write_row"),
    (psycopg.Copy, "finish"),
    (psycopg.Connection, "commit"),
)
PLACES = re.compile(r"%s(?:\)?, \(?%s)*|\"s\d+_x\d+\"")  # lists of values, names of savepoints: no two are alike
LOST = "server closed the connection unexpectedly"
OURS = "ends sessions"  # the application's name of the session that does it


def end_session(pid: int) -> None:
    """From another session; it is gone when this returns."""
    parameters = connection.get_connection_params() | {"cursor_factory": psycopg.Cursor, "application_name": OURS}
    with psycopg.connect(**parameters) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])


@dataclass
class SessionEnder:
    """Ends each session just as it sends a statement for which ``choose(statement, number)`` is true.

    Only while it is ``armed``. ``seen`` are the distinct statements in their order, ``sent`` counts all, ``ended``
    are those that were hit.
    """

    choose: Callable[[str, int], bool]
    seen: dict[str, int] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    sent: int = 0
    armed: bool = False
    _last: dict[int, str] = field(default_factory=dict)  # the text that was sent last, by session
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def named(self, pg: psycopg.Connection[Any], method: str, arguments: tuple[Any, ...]) -> str:
        """The statement that a call of the driver sends: its text without values, or what it does with the last one."""
        session = pg.info.backend_pid if not pg.closed else 0
        if method in {"execute", "executemany", "copy"}:
            text = arguments[0] if isinstance(arguments[0], str) else str(arguments[0])
            self._last[session] = PLACES.sub("…", " ".join(text.split()))
            return f"{method}: {self._last[session]}"
        return f"{method} after: {self._last.get(session, '')}"

    def meets(self, pg: psycopg.Connection[Any], statement: str) -> bool:
        """Whether the session was ended here."""
        if not self.armed or pg.closed or pg.info.parameter_status("application_name") == OURS:
            return False
        with self._guard:
            self.sent += 1
            number = self.sent
            self.seen[statement] = self.seen.get(statement, 0) + 1
            hit = self.choose(statement, number)
            if hit:
                self.ended.append(statement)
        if hit:
            end_session(pg.info.backend_pid)
        return hit


def lives_through(job: Job, ender: SessionEnder, *, turns: int = 250) -> Job:
    """Turns of a job, as a worker takes them, until it ends; what the sweep does between them is done by hand."""
    for _ in range(turns):
        lifecycle.resume_waiting()
        Job.objects.filter(id=job.id, status=Status.PAUSED).update(status=Status.QUEUED, not_before=None)
        Job.objects.filter(id=job.id).update(lease_until=None)
        ender.armed = True
        try:
            advance(str(job.id))
        finally:
            ender.armed = False
            connection.close()
        job.refresh_from_db()
        assert job.status != Status.FAILED, (job.error, ender.ended[-3:])
        if job.ended:
            return job
    raise AssertionError(f"{turns} turns were not enough: {job.status}, {len(ender.ended)} sessions ended")


def each_once() -> Callable[[str, int], bool]:
    """Each distinct statement once, when it is sent for the first time."""
    met: set[str] = set()

    def choose(statement: str, _: int) -> bool:
        new = statement not in met
        met.add(statement)
        return new

    return choose


@contextmanager
def sessions_ended(choose: Callable[[str, int], bool]) -> Iterator[SessionEnder]:
    """Watches every session of this process, of every thread, at the driver's own calls."""
    ender = SessionEnder(choose)
    with pytest.MonkeyPatch.context() as patch:
        for kind, name in METHODS:
            patch.setattr(kind, name, _watched(ender, getattr(kind, name), name))
        yield ender


def _watched(ender: SessionEnder, method: Any, name: str) -> Any:
    def watched(self: Any, *arguments: Any, **named: Any) -> Any:
        pg = self if isinstance(self, psycopg.Connection) else self.connection
        statement = ender.named(pg, name, arguments)
        ender.meets(pg, statement)
        answer = method(self, *arguments, **named)
        # The commit is done, and its answer is lost: what the driver says then, and all that it knows.
        if name == "commit" and ender.meets(pg, f"answer of {statement}"):
            pg.close()
            raise psycopg.OperationalError(LOST)
        return answer

    return watched
