"""A job's events: appended in the order of commits, then announced to watching pages and clients.

``seq`` is taken by an update of the job's row in the same transaction, so its order is the order of commits. A
reader of ``seq > n`` can't miss an event.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, TypedDict

from channels.layers import get_channel_layer
from django.db import connection, transaction

from agentcore_site.jobs.kinds import agent_of
from agentcore_site.jobs.models import Job, JobEvent
from agentcore_site.lib.broker import broker_asked
from agentcore_site.lib.redaction import redacted, stored_text
from agentcore_site.lib.trace_context import log_fields

LOGGED_APART: Final = frozenset({"iteration"})  # each iteration has a line, an event only some
SEND_SECONDS: Final = 2.0  # limits the pile of messages for a Redis that does not answer

log = logging.getLogger(__name__)


class LiveEvent(TypedDict):
    """Message to a page for each event."""

    seq: int
    at: str
    type: str
    level: str
    message: str
    data: dict[str, Any]


def event_add(
    job: Job, type: str, *, level: str = "info", message: str = "", data: dict[str, Any] | None = None
) -> JobEvent:
    """Appends an event, without personal data. Must run in the transaction of the described change."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE jobs_job SET seq = seq + 1 WHERE id = %s RETURNING seq", [job.id])
        job.seq = int(cursor.fetchone()[0])
    event = JobEvent.objects.create(
        job_id=job.id,
        seq=job.seq,
        type=type,
        level=level,
        message=stored_text(message, 300),
        data=redacted(data or {}),
    )
    job_id, seq = str(job.id), job.seq
    transaction.on_commit(lambda: announce(job_id, seq), robust=True)
    if type not in LOGGED_APART:
        ids = {"job_id": job_id, "kind": job.kind, "status": job.status, "reason": job.status_reason, "event": type}
        transaction.on_commit(partial(_log, job, level, ids | log_fields()), robust=True)
    return event


def _log(job: Job, level: str, fields: dict[str, str]) -> None:
    """One line for each step of a job of any kind, without the event's words: more people read logs than rows."""
    extra = fields | {"organization_id": str(job.organization_id), "agent_id": str(agent_of(job) or "")}
    log.log(logging.getLevelNamesMapping()[level.upper()], "job %s", fields["event"], extra=extra)


def events_after(job: Job, seq: int, limit: int = 500) -> list[LiveEvent]:
    return [as_live(event) for event in JobEvent.objects.filter(job=job, seq__gt=seq).order_by("seq")[:limit]]


def as_live(event: JobEvent) -> LiveEvent:
    return {
        "seq": event.seq,
        "at": event.at.isoformat(),
        "type": event.type,
        "level": event.level,
        "message": event.message,
        "data": event.data,
    }


def group_of(job_id: str) -> str:
    return f"job.{job_id}"


def announce(job_id: str, seq: int) -> None:
    """Announces to watchers that events up to ``seq`` are stored. A lost message costs seconds, no event."""
    sending = asyncio.run_coroutine_threadsafe(_send(group_of(job_id), seq), _announcer())
    sending.add_done_callback(lambda done: _log_failure(job_id, seq, done))


async def _send(group: str, seq: int) -> None:
    """Raises:
    RedisError, TimeoutError: Redis is unavailable.
    """
    layer = get_channel_layer()
    if layer is not None:
        with broker_asked():
            await asyncio.wait_for(layer.group_send(group, {"type": "job.moved", "seq": seq}), SEND_SECONDS)


def _log_failure(job_id: str, seq: int, done: Future[None]) -> None:
    # Redis may be unavailable: watchers poll as well, and the rows are the truth.
    if not done.cancelled() and (error := done.exception()):
        log.warning("watchers of job %s were not notified of event %s: %s", job_id, seq, error)


_loops: dict[int, asyncio.AbstractEventLoop] = {}
_guard = threading.Lock()


def _announcer() -> asyncio.AbstractEventLoop:
    """This process's event loop for sending: one connection, off the path of the work. Created again after a fork."""
    with _guard:
        loop = _loops.get(os.getpid())
        if loop is None:
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="announcer", daemon=True).start()
            _loops.clear()
            _loops[os.getpid()] = loop
        return loop
