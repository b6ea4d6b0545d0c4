"""The only writer of a job's status. Every transition is one conditional update; zero rows mean that another writer was
first.

All transitions are in one module, so that those of people and those of workers can be read against each other.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.db import IntegrityError, OperationalError, connection, transaction
from django.db.models import Case, F, Q, QuerySet, When
from django.db.models.functions import Now
from psycopg.errors import LockNotAvailable

from agentcore_site.audit.services import record
from agentcore_site.jobs import metrics, wakeup
from agentcore_site.jobs.events import event_add
from agentcore_site.jobs.kinds import JobKind, kinds
from agentcore_site.jobs.lease import Lease, LeaseLost, StopRequested
from agentcore_site.jobs.models import ACTIVE, ENDED, RESUMING, TRANSITIONS, Job, Priority, Reason, Status
from agentcore_site.jobs.notifications import job_notify
from agentcore_site.lib import disk, trace_context
from agentcore_site.lib.database import TROUBLE
from agentcore_site.lib.errors import Conflict, TooMany
from agentcore_site.lib.host_ids import worker_name
from agentcore_site.lib.redaction import stored_text
from agentcore_site.lib.registry import UnknownName
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization

log = logging.getLogger(__name__)

# Paused jobs that resume automatically, by reason: once their time has come, and once the server has room.
AGAIN: Final = {
    Reason.WAITING_FOR_LLM: "Trying the model's service again.",
    Reason.KEY_AWAY: "Asking for the encryption key again.",
    Reason.STORAGE_AWAY: "Trying the object storage again.",
    Reason.SPENDING_RATE: "Its organisation may spend again.",
}
WAITS: Final = (*AGAIN, Reason.DISK_FULL)
REQUESTS: Final = {"pause": Status.PAUSED, "cancel": Status.CANCELLED}

SHORTEST_WAIT: Final = 15.0  # seconds before a service that was unavailable is tried again
LONGEST_WAIT: Final = 1_800.0
DOUBLINGS: Final = 8  # from the shortest to the longest
LOCK_SECONDS: Final = 5  # limit on a claim's wait for a job's row: a waiting worker does nothing else
ASKED_SECONDS: Final = 2  # limit on a person's wait for it, before the request is refused


# -- a person's moves -------------------------------------------------------------------------------------------------


def submit(
    actor: Actor | None,
    *,  # the fields of the row
    kind: str,
    organization: Organization,
    title: str,
    exclusive_key: str = "",
    priority: int = Priority.NORMAL,
    not_before: datetime | None = None,
    busy: str = "There is already an active job for this. Wait for it, or cancel it.",
) -> Job:
    """Adds a queued job with its first event. Must be called inside a transaction with the row of its kind.

    Raises:
        Conflict: another active job holds ``exclusive_key`` (the message is ``busy``, or names a job of another kind).
        TooMany: the organisation's or the person's limit of active jobs is reached.
        Insufficient: the disk is nearly full.
        UnknownName: no such kind is registered.
    """
    kinds.get(kind)
    disk.require_room()
    user = Actor.of(actor).user if actor is not None else None
    # The organisation's row is the lock: two submissions at once can't both take the last slot.
    _check_active(user, Organization.objects.select_for_update(no_key=True).get(id=organization.id))
    try:
        with transaction.atomic():
            job = Job.objects.create(
                organization=organization,
                kind=kind,
                title=title[:200],
                exclusive_key=exclusive_key,
                priority=priority,
                not_before=not_before,
                created_by=user,
            )
    except IntegrityError as error:
        if "one_active_job_per_key" in str(error):
            raise Conflict(_held(kind, exclusive_key) or busy) from error
        raise
    trace = trace_context.current()
    traced = {} if trace is None else {trace_context.HEADER: str(trace)}
    event_add(job, "created", message="Job created and queued.", data={"status": job.status, **traced})
    wakeup.wake_on_commit(job)
    return job


def submit_check(actor: Actor, *, kind: str, organization: Organization, exclusive_key: str, busy: str) -> None:
    """Checks that ``submit`` would accept a job now. It holds nothing: another job may be first meanwhile.

    Raises:
        Conflict, TooMany, Insufficient: as ``submit``.
    """
    disk.require_room()
    _check_active(Actor.of(actor).user, organization)
    if Job.objects.filter(exclusive_key=exclusive_key, status__in=ACTIVE).exists():
        raise Conflict(_held(kind, exclusive_key) or busy)


def pause(actor: Actor, job: Job) -> Job:
    """Pauses a job at once if no worker holds it, else requests it of its worker. A job that waits for a service stays
    paused, and no longer resumes automatically.

    Raises:
        Conflict: the job has ended, or only a person can resume it anyway.
    """
    return _ask(actor, job, action="pause")


def cancel(actor: Actor | None, job: Job) -> Job:
    """Cancels a job at once if no worker holds it, else requests it of its worker.

    Raises:
        Conflict: the job has already ended.
    """
    return _ask(actor, job, action="cancel")


def resume(actor: Actor, job: Job) -> Job:
    """Puts a paused or failed job back into the queue, or withdraws a request that its worker has not met yet.

    Raises:
        Conflict: the job is not paused or failed, or another job took its place meanwhile.
    """
    with transaction.atomic():
        rows = Job.objects.select_for_update(no_key=True).filter(id=job.id)
        before, asked = rows.values_list("status", "requested").get()
        try:
            with transaction.atomic():
                moved = Job.objects.filter(id=job.id, status__in=(Status.PAUSED, Status.FAILED)).update(
                    status=Status.QUEUED,
                    status_reason="",
                    error="",
                    crashes=0,
                    requested="",
                    lease_until=None,
                    nudged_at=None,
                    finished_at=None,
                    # A job that waited for a service waits no longer; a planned start stays planned.
                    not_before=Case(When(status_reason__in=WAITS, then=None), default=F("not_before")),
                )
        except IntegrityError as error:
            raise Conflict("Another job for the same agent is active. Wait for it, or cancel it.") from error
        if not moved and not asked:
            raise Conflict(f"Only a paused or failed job can be resumed; this one is {before}.")
        if not moved:
            Job.objects.filter(id=job.id).update(requested="")
        job.refresh_from_db()
        message = f"Resumed by {Actor.of(actor).name}." if moved else f"{Actor.of(actor).name} withdrew the {asked}."
        event_add(job, "resumed", message=message, data={"status": job.status})
        record(actor, "job.resumed", job, before={"status": before}, after={"status": job.status})
        if moved:
            wakeup.wake_on_commit(job)
    return job


# -- a worker's moves -------------------------------------------------------------------------------------------------


def claim(job_id: Any, *, attempt: int | None = None) -> Job | None:
    """Takes a job for this worker: one conditional update on the database's clock. None: another worker has it, or its
    row is locked for longer than any transaction of ours; then the sweep wakes a worker again.

    ``attempt`` is that of the message: a late or duplicate message finds another number and does nothing.
    """
    try:
        return _claimed(job_id, attempt)
    except OperationalError as error:
        if not isinstance(error.__cause__, LockNotAvailable):
            raise
        log.warning("job %s can't be taken: its row is locked", job_id)
        return None


def hung_writes_end(seconds: float | None = None) -> int:
    """Ends sessions of ours that wait for their client in the middle of a COPY or an answer, and returns how many:
    their worker is frozen, and holds the rows of its job. (PostgreSQL itself ends sessions that are idle in a
    transaction; these count as busy.) The restore of a backup has another name, and no such limit."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
            " AND usename = session_user AND application_name = current_setting('application_name')"
            " AND pid <> pg_backend_pid() AND state = 'active' AND wait_event IN ('ClientRead', 'ClientWrite')"
            " AND query_start < clock_timestamp() - make_interval(secs => %s)",
            [settings.IDLE_SECONDS if seconds is None else seconds],
        )
        return len(cursor.fetchall())


def _claimed(job_id: Any, attempt: int | None) -> Job | None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'")
        cursor.execute(
            "UPDATE jobs_job SET"
            "   crashes = crashes + CASE WHEN lease_until IS NULL THEN 0 ELSE 1 END,"
            "   status = 'running', status_reason = '', attempt = attempt + 1, worker = %(worker)s, nudged_at = NULL,"
            "   lease_until = clock_timestamp() + make_interval(secs => %(lease)s),"
            "   started_at = COALESCE(started_at, clock_timestamp()), updated_at = clock_timestamp()"
            " WHERE id = %(id)s AND status IN ('queued', 'running')"
            "   AND (lease_until IS NULL OR lease_until < clock_timestamp())"
            "   AND (not_before IS NULL OR not_before <= clock_timestamp())"
            "   AND (%(attempt)s::int IS NULL OR attempt = %(attempt)s)"
            " RETURNING attempt",
            {"worker": worker_name(), "lease": settings.JOB_LEASE_SECONDS, "id": job_id, "attempt": attempt},
        )
        if cursor.fetchone() is None:
            return None
        job = Job.objects.select_related("organization", "created_by").get(id=job_id)
        if job.attempt == 1:
            event_add(job, "started", message="A worker has taken the job.", data={"status": job.status})
            job_notify(job)
    return job


def give_back(job: Job, lease: Lease) -> None:
    """Ends a slice: no worker holds the job now, and it queues for its next turn behind the others.

    Raises:
        StopRequested: a person requested to pause or cancel at the last moment; nothing was written.
    """
    with lease.fenced(lease_until=None, nudged_at=Now(), worked_ms=F("worked_ms") + lease.held_ms):
        # The row is locked now: a later request finds the job free, and an earlier one is answered here.
        if asked := Job.objects.values_list("requested", flat=True).get(id=job.id):
            raise StopRequested(asked)
        wakeup.wake_on_commit(job)


def put_back(job: Job, lease: Lease) -> bool:
    """Leaves a job after a database failure to the next sweep, which comes before the end of its lease, and counts no
    crash. False: the database is still unavailable, or another worker has the job; then the lease's end decides."""
    connection.close()
    try:
        with lease.fenced(lease_until=None, nudged_at=None, worked_ms=F("worked_ms") + lease.held_ms):
            return True
    except (LeaseLost, *TROUBLE) as error:
        log.warning("job %s waits for the end of its lease: %s", job.id, error)
        return False


def stop(job: Job, lease: Lease) -> str:
    """Ends a slice as people request now, and returns the outcome: the last request wins. Without a request, because it
    was withdrawn after the worker had read it, the job takes its next turn.

    Raises:
        LeaseLost: another attempt has begun; nothing was written.
    """
    with lease.fenced():  # the row is locked: no request comes between the reading and the end
        requested = Job.objects.values_list("requested", flat=True).get(id=job.id)
        if not requested:
            give_back(job, lease)
            return "given back"
        finish(job, lease, status=REQUESTS[requested], reason=Reason.USER)
        return str(job.status)


def finish(
    job: Job, lease: Lease, *, status: str, reason: str, error: str = "", retry_after: float | None = None
) -> None:
    """Moves a job that this worker holds to ``status``; the fence decides whether it may. A person's request wins over
    an end of the worker's own (``_as_requested``). A job that waits for a model's service is resumed by the sweep after
    ``retry_after`` seconds, one that waits for disk space once there is some. ``error`` may quote texts of people: it
    is redacted.

    Raises:
        LeaseLost: another attempt has begun; nothing was written.
    """
    with lease.fenced():  # the row is locked: a later request finds the job without a worker
        requested = Job.objects.values_list("requested", flat=True).get(id=job.id)
        ends, reason = _as_requested(requested, status, reason)
        _allowed(Status.RUNNING, ends)
        changes: dict[str, Any] = {"finished_at": Now()} if ends in ENDED else {}
        if reason in AGAIN:
            changes["not_before"] = Now() + timedelta(seconds=max(retry_after or 0.0, _next_wait(job)))
        elif reason == Reason.DISK_FULL:
            changes["not_before"] = Now()  # the sweep checks the disk
        Job.objects.filter(id=job.id).update(
            status=ends,
            status_reason=reason,
            error=stored_text(error, 4000) if ends == status or status == Status.FAILED else "",
            lease_until=None,
            requested="",
            worked_ms=F("worked_ms") + lease.held_ms,
            updated_at=Now(),
            **changes,
        )
        job.refresh_from_db()
        _announce(job)
        if requested and ends == Status.COMPLETED:
            message = f"The request to {requested} came after the last step."
            event_add(job, f"{requested}_too_late", message=message)
        if job.status_reason == Reason.USER:
            record(job.created_by, f"job.{job.status}", job, after={"status": job.status})


def resume_waiting(limit: int = 500) -> int:
    """Requeues jobs that waited for a model's service, or for room on the disk, once their time has come. Returns how
    many."""
    again = dict(AGAIN)
    if not disk.shortage():
        again[Reason.DISK_FULL] = "There is room on the disk again."
    waiting = Job.objects.filter(status=Status.PAUSED, status_reason__in=again, not_before__lte=Now())
    due = waiting.order_by("not_before")[:limit]
    return sum(requeue(waiting, job, again[Reason(job.status_reason)]) for job in due)


def requeue(paused: QuerySet[Job], job: Job, why: str) -> bool:
    """Requeues ``job`` automatically, if it is still one of ``paused``. A paused job is an active one: it holds its
    exclusive key already."""
    with transaction.atomic():
        moved = paused.filter(id=job.id).update(
            status=Status.QUEUED, status_reason="", error="", requested="", nudged_at=None, not_before=None
        )
        if moved:
            job.refresh_from_db()
            event_add(job, "resumed", message=why, data={"status": job.status, "by_itself": True})
            wakeup.wake_on_commit(job)
    return bool(moved)


def _next_wait(job: Job) -> float:
    """Seconds until a service that was unavailable is tried again: doubled after each attempt without progress."""
    waits = 0
    for event in job.events.order_by("-seq").only("type", "data")[: 2 * DOUBLINGS]:
        if event.type == "resumed" and event.data.get("by_itself"):
            waits += 1
        elif event.type != Status.PAUSED:
            break
    return min(SHORTEST_WAIT * 2.0**waits, LONGEST_WAIT)


def fail_abandoned(job: Job) -> None:
    """Ends a job whose workers keep dying (a poison job), so that it can't loop for ever."""
    with transaction.atomic():
        rows = Job.objects.select_for_update(no_key=True).filter(attempt=job.attempt, status=Status.RUNNING)
        requested = rows.filter(id=job.id).values_list("requested", flat=True).first()
        status, reason = _as_requested(requested or "", Status.FAILED, Reason.CRASHED)
        moved = requested is not None and Job.objects.filter(id=job.id).update(
            status=status,
            status_reason=reason,
            error=f"The worker died {job.crashes} times while it held this job.",
            requested="",
            lease_until=None,
            finished_at=Now(),
        )
        if moved:
            job.refresh_from_db()
            _announce(job)


def free() -> QuerySet[Job]:
    """Active jobs that no worker holds and that may begin now, the most urgent first."""
    return Job.objects.filter(
        Q(lease_until=None) | Q(lease_until__lt=Now()),
        Q(not_before=None) | Q(not_before__lte=Now()),
        status__in=(Status.QUEUED, Status.RUNNING),
    ).order_by("priority", "created_at")


def due(lost: int, *, rung_before: datetime, limit: int = 500) -> list[Job]:
    """Free jobs that need a message: those without one, and ``lost`` of those whose message may be lost. A job has one
    message until it is claimed, so there are never more messages than waiting jobs.

    Skips a row that another session keeps locked: a worker that froze in the middle of a write holds it for up to half
    a minute. No worker can claim it meanwhile, and waiting for it would delay the others.
    """
    old = Q(nudged_at__lt=rung_before) | Q(lease_until__lt=Now(), nudged_at__isnull=False)
    with transaction.atomic():
        rows = free().select_for_update(no_key=True, skip_locked=True)
        unknown = list(rows.filter(nudged_at=None)[:limit])
        dead_first = rows.filter(old).order_by(F("lease_until").asc(nulls_last=True), "nudged_at")
        return [*unknown, *dead_first[: max(0, min(lost, limit))]]


# -- shared -----------------------------------------------------------------------------------------------------------


def _as_requested(requested: str, status: str, reason: str) -> tuple[str, str]:
    """The (status, reason) with which a slice ends, given a person's request and the end that the worker chose.

    A cancel wins over each end but a completion, which leaves nothing to cancel. A pause wins over each pause that may
    end without a person.
    """
    if requested == "cancel" and status != Status.COMPLETED:
        return Status.CANCELLED, Reason.USER
    if requested == "pause" and status == Status.PAUSED and reason in RESUMING:
        return Status.PAUSED, Reason.USER
    return status, reason


def _ask(actor: Actor | None, job: Job, *, action: str) -> Job:
    target = REQUESTS[action]
    with transaction.atomic():
        # 1. Lock the row, so that the worker's own transitions and ours come one after the other.
        with connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL lock_timeout = '{ASKED_SECONDS}s'")
        locked = Job.objects.select_for_update(no_key=True).get(id=job.id)
        if not (locked.pausable if action == "pause" else locked.active):
            raise Conflict(f"A job that is {locked.status} can't be {target}.")
        before = {"status": locked.status}
        # 2. A worker holds it: store the request, which the worker reads within a quarter of a second.
        with connection.cursor() as cursor:
            cursor.execute("SELECT lease_until > clock_timestamp() FROM jobs_job WHERE id = %s", [job.id])
            held = bool(cursor.fetchone()[0])
        if held:
            Job.objects.filter(id=job.id).update(requested=action)
            message = f"{Actor.of(actor).name} asked to {action}."
            event_add(locked, f"{action}_requested", message=message, data={"requested": action})
        # 3. No worker holds it: move it now. The raised attempt fences off a worker that comes back late.
        else:
            ended = {"finished_at": Now()} if target in ENDED else {}
            Job.objects.filter(id=job.id).update(
                status=target,
                status_reason=Reason.USER,
                error="",
                requested="",
                not_before=Case(When(status_reason__in=WAITS, then=None), default=F("not_before")),
                lease_until=None,
                attempt=F("attempt") + 1,
                **ended,
            )
            locked.refresh_from_db()
            _announce(locked)
        record(actor, f"job.{action}_requested", locked, before=before, after={"requested": action})
    job.refresh_from_db()
    return job


def _announce(job: Job) -> None:
    """Final steps of a transition, in its transaction: the kind's own rows, the event, the metrics."""
    kind = _kind_of(job)
    if kind is not None:
        kind.stopped(job)
    level = "error" if job.status == Status.FAILED else "info"
    why = f": {job.get_status_reason_display()}" if job.status_reason else ""
    data = {"status": job.status, "reason": job.status_reason, "error": job.error[:500]}
    event_add(job, job.status, level=level, message=f"{job.get_status_display()}{why}.", data=data)
    job_notify(job)
    if job.ended:
        metrics.completed(job.kind, job.status)


def _kind_of(job: Job) -> JobKind | None:
    """None if its package was removed: the job ends all the same."""
    try:
        return kinds.get(job.kind)
    except UnknownName as error:
        log.error("job %s is without its kind: %s", job.id, error)
        return None


def _allowed(source: str, target: str) -> None:
    if target not in TRANSITIONS[source]:
        raise Conflict(f"A job that is {source} can't become {target}.")


def _held(kind: str, exclusive_key: str) -> str:
    """The job of another kind that holds the key; "" if it is a job of this kind, or has just ended."""
    holder = Job.objects.filter(exclusive_key=exclusive_key, status__in=ACTIVE).exclude(kind=kind).first()
    if holder is None:
        return ""
    return f"The job “{holder}” ({holder.kind}, {holder.status}) holds this. Wait until it ends, or cancel it."


def _check_active(user: Any, organization: Organization) -> None:
    active, most = Job.objects.filter(organization=organization, status__in=ACTIVE), organization.max_active_jobs
    if active.count() >= most:
        raise TooMany(f"Your organisation may have {most} active jobs. Wait for one, or cancel one.")
    if user is not None and active.filter(created_by=user).count() >= settings.JOBS_PER_USER:
        raise TooMany(f"You may have {settings.JOBS_PER_USER} active jobs at once. Wait for one, or cancel one.")
