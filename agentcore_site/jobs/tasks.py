"""The engine's two Celery tasks: one slice of one job, and the sweep."""

from __future__ import annotations

import logging
import traceback
from datetime import timedelta

from celery import shared_task
from django.conf import settings
from django.db import InterfaceError, InternalError, OperationalError, close_old_connections
from django.utils import timezone

from agentcore_site import memory
from agentcore_site.errors import DomainError
from agentcore_site.jobs import doorbell, lifecycle, metrics
from agentcore_site.jobs.kinds import kinds
from agentcore_site.jobs.lease import Lease, LeaseLost, MustPause, StopRequested
from agentcore_site.jobs.models import Job, Reason, Status

log = logging.getLogger(__name__)

NUDGE_AGAIN = timedelta(seconds=60)


@shared_task(name="jobs.advance")
def advance(job_id: str, attempt: int | None = None) -> str:
    """One slice: claim, work, then end, pause or give back. Returns what happened, for the log."""
    job = lifecycle.claim(job_id, attempt=attempt)
    if job is None:
        return "taken"
    try:
        return run_slice(job)
    finally:
        close_old_connections()
        memory.settle()


def run_slice(job: Job) -> str:
    with Lease(job) as lease:
        try:
            result = kinds.get(job.kind).advance(job, lease)
            if result.finished:
                lifecycle.finish(job, lease, status=Status.COMPLETED, reason=result.reason)
                return "completed"
            lifecycle.give_back(job, lease)
            return "given back"
        except StopRequested as stop:
            status = Status.PAUSED if stop.action == "pause" else Status.CANCELLED
            lifecycle.finish(job, lease, status=status, reason=Reason.USER)
            return str(status)
        except MustPause as pause:
            why = {"reason": pause.reason, "error": pause.message}
            lifecycle.finish(job, lease, status=Status.PAUSED, retry_after=pause.retry_after, **why)
            return "paused"
        except LeaseLost as lost:
            log.warning("lease lost: %s", lost)
            return "lost"
        except DomainError as error:
            return _failed(job, lease, error.message)
        except (OperationalError, InterfaceError, InternalError) as error:
            # The database went away, or ended a session that hung. It says nothing about the job: its row stays as it
            # is, and once the lease has run out it is taken up again from what was kept.
            log.warning("the database failed job %s: %s", job.id, error)
            return "database away"
        except Exception as error:  # a failure is data with an address: it stands in the job's row and events
            log.exception("job %s failed", job.id)
            where = traceback.extract_tb(error.__traceback__)[-1]
            return _failed(job, lease, f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})")


def _failed(job: Job, lease: Lease, message: str) -> str:
    metrics.errors.labels(error_type="job_failed", component=job.kind).inc()
    try:
        lifecycle.finish(job, lease, status=Status.FAILED, reason=Reason.ERROR, error=message)
    except LeaseLost:
        return "lost"
    return "failed"


@shared_task(name="jobs.sweep")
def sweep() -> int:
    """Rings again for jobs that nobody holds: lost messages, dead or frozen workers, scheduled starts. Returns how
    many."""
    lifecycle.hung_writes_end()
    rung = lifecycle.resume_waiting()
    for job in lifecycle.due(timezone.now() - NUDGE_AGAIN):
        if job.crashes >= settings.JOB_MAX_CRASHES and job.status == Status.RUNNING:
            lifecycle.fail_abandoned(job)
        else:
            rung += doorbell.ring(job.id, job.attempt, job.priority)
    return rung
