"""The engine's two Celery tasks: one slice of one job, and the sweep."""

from __future__ import annotations

import logging
import traceback
from datetime import timedelta

from celery import shared_task
from django.conf import settings
from django.db import close_old_connections
from django.utils import timezone

from agentcore_site import secret_key
from agentcore_site.jobs import lifecycle, wakeup
from agentcore_site.jobs.kinds import kinds
from agentcore_site.jobs.lease import CancelledElsewhere, Lease, LeaseLost, MustFail, MustPause, StopRequested
from agentcore_site.jobs.models import Job, Reason, Status
from agentcore_site.lib import disk, gc_freeze, row_scope, trace_context
from agentcore_site.lib.database import TROUBLE, error_type, trouble_in
from agentcore_site.lib.error_metrics import errors
from agentcore_site.lib.errors import DomainError
from agentcore_site.lib.key_errors import KeyUnavailable
from agentcore_site.lib.object_storage import ObjectsUnavailable
from agentcore_site.lib.trace_context import TraceParent

log = logging.getLogger(__name__)


@shared_task(name=wakeup.ADVANCE)
def advance(job_id: str, attempt: int | None = None) -> str:
    """One slice: claim, work, then end, pause or give back. Returns the outcome, for the log."""
    try:
        secret_key.require_same_once()
        job = lifecycle.claim(job_id, attempt=attempt)
        if job is None:
            return "taken"
        with row_scope.only(job.organization_id):
            return run_slice(job)
    except secret_key.OtherSecretKey as error:
        log.error("job %s is left to other workers: %s", job_id, error)
        return "another key"
    except TROUBLE as error:  # its row has the end of its lease, if it is held: the sweep wakes a worker again
        log.warning("job %s can't be taken, the database failed: %s", job_id, error)
        return "database away"
    finally:
        close_old_connections()
        gc_freeze.settle()


def _trace_of(job: Job) -> TraceParent:
    """The trace of the request that launched the job."""
    created = job.events.order_by("seq").values_list("data", flat=True).first() or {}
    return trace_context.of_job(job.id, str(created.get(trace_context.HEADER, "")))


def run_slice(job: Job) -> str:
    """One turn with a claimed job. After any database failure the job is continued later."""
    with trace_context.work(_trace_of(job), job_id=str(job.id)), Lease(job) as lease:
        try:
            return _turn(job, lease)
        except LeaseLost as lost:
            log.warning("lease lost: %s", lost)
            return "lost"
        except TROUBLE as error:
            errors.labels(error_type=error_type(error), component=job.kind).inc()
            log.warning("the database failed job %s: %s", job.id, error)
            lifecycle.put_back(job, lease)
            return "database away"


def _turn(job: Job, lease: Lease) -> str:
    """Raises:
    LeaseLost: another worker has the job.
    TROUBLE: the database's own errors, also while the turn's end was written.
    """
    try:
        lease.check()  # a request that the last holder did not meet comes first
        if full := disk.shortage():
            raise MustPause(Reason.DISK_FULL, full)
        result = kinds.get(job.kind).advance(job, lease)
        if result.finished:
            lifecycle.finish(job, lease, status=Status.COMPLETED, reason=result.reason)
            return "completed"
        lifecycle.give_back(job, lease)
        return "given back"
    except StopRequested:
        return lifecycle.stop(job, lease)
    except CancelledElsewhere:
        lifecycle.finish(job, lease, status=Status.CANCELLED, reason=Reason.USER)
    except MustPause as pause:
        why = {"reason": pause.reason, "error": pause.message}
        lifecycle.finish(job, lease, status=Status.PAUSED, retry_after=pause.retry_after, **why)
    except KeyUnavailable as away:
        lifecycle.finish(job, lease, status=Status.PAUSED, reason=Reason.KEY_AWAY, error=away.message)
    except ObjectsUnavailable as away:
        lifecycle.finish(job, lease, status=Status.PAUSED, reason=Reason.STORAGE_AWAY, error=away.message)
    except LeaseLost:
        raise
    except Exception as error:  # a failure is data: it is stored in the job's row and events
        if (trouble := trouble_in(error)) is not None:
            raise trouble from error
        _failed(job, lease, error)
    return str(job.status)


def _failed(job: Job, lease: Lease, error: Exception) -> None:
    if isinstance(error, DomainError | MustFail):
        message = error.message
    else:
        where = traceback.extract_tb(error.__traceback__)[-1]
        message = f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"
        log.error("job %s failed", job.id, exc_info=error)
    errors.labels(error_type="job_failed", component=job.kind).inc()
    reason = error.reason if isinstance(error, MustFail) else Reason.ERROR
    lifecycle.finish(job, lease, status=Status.FAILED, reason=reason, error=message)


@shared_task(name="jobs.sweep")
def sweep() -> int:
    """Sends messages again for jobs that no worker holds: lost messages, dead or frozen workers, scheduled starts.
    Returns how many."""
    lifecycle.hung_writes_end()
    rung = lifecycle.resume_waiting()
    waiting = wakeup.messages_waiting()
    if waiting is None:
        return rung
    lost = lifecycle.free().filter(nudged_at__isnull=False).count() - waiting
    # As long as a lease: a frozen worker may have taken the message with it.
    again = timezone.now() - timedelta(seconds=settings.JOB_LEASE_SECONDS)
    for job in lifecycle.due(lost, rung_before=again):
        if job.crashes >= settings.JOB_MAX_CRASHES and job.status == Status.RUNNING:
            _end_abandoned(job)
        else:
            rung += wakeup.wake(job.id, job.attempt, job.priority)
    return rung


def _end_abandoned(job: Job) -> None:
    """Its kind may be of a third-party package: an exception there does not delay other jobs."""
    try:
        lifecycle.fail_abandoned(job)
    except TROUBLE:
        raise
    except Exception:
        errors.labels(error_type="job_not_ended", component=job.kind).inc()
        log.exception("job %s could not be ended", job.id)
