"""Messages that wake a worker. The row is the truth: a lost message is sent again by the sweep."""

from __future__ import annotations

import logging
from typing import Any

from django.db import transaction
from django.utils import timezone

from agentcore_site.jobs.models import Job

log = logging.getLogger(__name__)


def ring_on_commit(job: Job) -> None:
    job_id, attempt, priority = job.id, job.attempt, job.priority
    # A lambda and not a partial: Django's log of a failing robust hook needs a __qualname__.
    transaction.on_commit(lambda: ring(job_id, attempt, priority), robust=True)


def ring(job_id: Any, attempt: int, priority: int) -> bool:
    """Sends the message. False (and a log line) if the broker is away; the sweep will ring again."""
    from agentcore_site.jobs.tasks import advance

    try:
        advance.apply_async(args=[str(job_id), attempt], priority=priority, retry=False)
    except Exception as error:  # kombu raises many kinds; none of them may reach the person who submitted the job
        log.warning("no worker was woken for job %s, the sweep will: %s", job_id, error)
        return False
    Job.objects.filter(id=job_id, attempt=attempt).update(nudged_at=timezone.now())
    return True
