"""A worker's claim on a job: heartbeat, fence, and polling for pause and cancel."""

from __future__ import annotations

import faulthandler
import logging
import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from django.conf import settings
from django.db import connection, transaction

from agentcore_site.jobs.models import Job, Status
from agentcore_site.lib.database import TROUBLE
from agentcore_site.lib.row_scope import everything

log = logging.getLogger(__name__)

POLL_SECONDS = 0.25
SHORTEST_SLICE = 0.2
CROWD, CROWDED_UNITS = 16, 5  # with more jobs than this, a turn has at most so many iterations


class LeaseLost(Exception):
    """Another worker has the job, or it ended: this worker must stop and may write nothing more."""


class StopRequested(Exception):
    """A person requested ``action`` ("pause" or "cancel")."""

    def __init__(self, action: str) -> None:
        super().__init__(action)
        self.action = action


class CancelledElsewhere(Exception):
    """The work is no longer wanted, without a request to this job: its object was deleted, or the service that does the
    work cancelled it."""


class MustPause(Exception):
    """The work can't continue for now; a person, or time, may change that.

    ``reason`` is one of ``Reason``, ``message`` gives details, ``retry_after`` (seconds) is set if another attempt
    makes sense.
    """

    def __init__(self, reason: str, message: str = "", retry_after: float | None = None) -> None:
        super().__init__(message or reason)
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


class MustFail(Exception):
    """The work ended without a result, for a named reason. ``reason`` is one of ``Reason``."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class Turn(NamedTuple):
    """Length of a worker's turn with a job: until ``seconds`` are over or ``units`` of work (iterations) are done."""

    seconds: float
    units: float = math.inf


@everything()
def fair_turn() -> Turn:
    """The usual slice. If many jobs wait it is shorter, so that a round through them stays short, and ends after a few
    units at the latest: otherwise a job with quick iterations (its agent learned to take fewer steps) would outrun slow
    ones."""
    active = Job.objects.filter(status__in=(Status.QUEUED, Status.RUNNING)).count()
    share = settings.JOB_ROUND_SECONDS / max(active, 1)
    seconds = min(settings.JOB_SLICE_SECONDS, max(share, SHORTEST_SLICE))
    return Turn(float(seconds), CROWDED_UNITS if active > CROWD else math.inf)


class Lease:
    """Holds one job for one slice. Use as a context manager.

    A thread renews the lease every third of it and polls for requests, on its own connection and on the database's
    clock. The work calls ``check()``, which costs no query. Work without a call for ``JOB_STALL_SECONDS`` hangs: no
    code in this process can help it, so the process logs the stack of each thread, and exits. Another one continues the
    job, as after any crash.
    """

    def __init__(self, job: Job, *, turn: Turn | None = None) -> None:
        self.job_id = job.id
        self.attempt = job.attempt
        self.turn = turn or fair_turn()
        self._units = 0
        self.lease_seconds = float(settings.JOB_LEASE_SECONDS)
        self._began = time.monotonic()
        self._renewed = self._checked = self._began
        self._requested = job.requested
        self._lost = False
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"lease-{job.id}", daemon=True)

    def __enter__(self) -> Lease:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join(timeout=5)

    # -- asked by the work ---------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises if the work has to stop now.

        Raises:
            LeaseLost: another worker took the lease, or it could not be renewed in time.
            StopRequested: a person requested to pause or cancel.
        """
        self._checked = time.monotonic()
        if self._lost or self._checked - self._renewed > self.lease_seconds:
            raise LeaseLost(f"job {self.job_id}, attempt {self.attempt}")
        if self._requested:
            raise StopRequested(self._requested)

    def count_unit(self) -> None:
        """One unit of work (an iteration) is done and committed."""
        self._units += 1

    @property
    def slice_over(self) -> bool:
        return self._units >= self.turn.units or time.monotonic() - self._began >= self.turn.seconds

    @property
    def held_ms(self) -> int:
        return int((time.monotonic() - self._began) * 1000)

    @contextmanager
    def fenced(self, **changes: Any) -> Iterator[None]:
        """A transaction that only the holder of this attempt can commit. ``changes`` go to the job's row.

        Raises:
            LeaseLost: another attempt has begun; nothing was written.
        """
        self._checked = time.monotonic()
        with transaction.atomic():
            # 1. The conditional update locks the row: a claim by another worker waits until we have committed.
            # 2. Zero rows: another worker claimed it, or it ended. The transaction is rolled back by the exception.
            if not self._touch(changes or {"attempt": self.attempt}):
                raise LeaseLost(f"job {self.job_id}, attempt {self.attempt}")
            yield

    def _touch(self, changes: dict[str, Any]) -> int:
        """Changes the job's row if this attempt still holds it; returns the number of changed rows, 0 or 1."""
        if any(hasattr(value, "resolve_expression") for value in changes.values()):
            return Job.objects.filter(id=self.job_id, attempt=self.attempt, status=Status.RUNNING).update(**changes)
        # Every iteration of every job runs this, and Django takes longer to build the statement than PostgreSQL to
        # execute it.
        assignments = ", ".join(f"{name} = %s" for name in changes)
        with connection.cursor() as cursor:
            cursor.execute(
                f"UPDATE jobs_job SET {assignments} WHERE id = %s AND attempt = %s AND status = 'running'",  # noqa: S608
                [*changes.values(), self.job_id, self.attempt],
            )
            return int(cursor.rowcount)

    # -- the keeper's thread ---------------------------------------------------------------------------------------

    @everything()
    def _keep(self) -> None:
        try:
            while not self._done.wait(POLL_SECONDS):
                if time.monotonic() - self._checked > settings.JOB_STALL_SECONDS:
                    self._end_process()
                due = time.monotonic() - self._renewed >= self.lease_seconds / 3
                try:
                    alive = self._renew() if due else self._listen()
                except TROUBLE:
                    connection.close()  # the database is unavailable: `check` gives up once the lease has expired
                    continue
                if not alive:
                    self._lost = True
                    return
        finally:
            connection.close()

    def _end_process(self) -> None:
        log.critical("job %s hangs for %d s; this process exits", self.job_id, settings.JOB_STALL_SECONDS)
        faulthandler.dump_traceback(all_threads=True)
        os.kill(os.getpid(), signal.SIGKILL)

    def _renew(self) -> bool:
        """Extends the lease. A job that was given back meanwhile has no holder, and stays so: to the next worker a
        lease without a holder is a crash."""
        asked = time.monotonic()
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE jobs_job SET lease_until = clock_timestamp() + make_interval(secs => %s)"
                " WHERE id = %s AND attempt = %s AND status = 'running' AND lease_until IS NOT NULL"
                " RETURNING requested",
                [self.lease_seconds, self.job_id, self.attempt],
            )
            row = cursor.fetchone()
        if row is None:
            return False
        self._renewed, self._requested = asked, row[0]
        return True

    def _listen(self) -> bool:
        rows = Job.objects.filter(id=self.job_id, attempt=self.attempt, status=Status.RUNNING)
        row = rows.values_list("requested", flat=True).first()
        if row is None:
            return False
        self._requested = row
        return True
