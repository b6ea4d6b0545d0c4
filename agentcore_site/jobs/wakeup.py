"""Messages that wake a worker. The row is the truth: a lost message is sent again by the sweep."""

from __future__ import annotations

import logging
import os
from functools import lru_cache
from typing import Any, Final

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from agentcore_site.celery import app
from agentcore_site.jobs.models import Job
from agentcore_site.lib.broker import broker_asked

LINKS: Final = 8
QUEUE: Final = "compute"  # of jobs
ADVANCE: Final = "jobs.advance"  # the task, by its name: its module stands above this one
ACQUIRE_SECONDS: Final = 0.3

log = logging.getLogger(__name__)


@lru_cache(maxsize=1)
def _links(_: int) -> Any:
    """This process's connections for sending, which give up at once; made anew after a fork. Those of workers wait
    longer: they listen."""
    options = (
        settings.CELERY_BROKER_TRANSPORT_OPTIONS | settings.REDIS_TIMEOUTS | {"max_retries": 1, "interval_start": 0}
    )
    return app.connection_for_write(
        transport_options=options, connect_timeout=settings.REDIS_TIMEOUTS["socket_connect_timeout"]
    ).Pool(limit=LINKS)


def ring_on_commit(job: Job) -> None:
    job_id, attempt, priority = job.id, job.attempt, job.priority
    # A lambda and not a partial: Django's log of a failing robust hook needs a __qualname__.
    transaction.on_commit(lambda: ring(job_id, attempt, priority), robust=True)


def ring(job_id: Any, attempt: int, priority: int) -> bool:
    """Sends the message. False (and a log line) if the broker is away; the sweep will ring again."""
    try:
        with broker_asked(), _links(os.getpid()).acquire(block=True, timeout=ACQUIRE_SECONDS) as link:
            app.send_task(ADVANCE, args=[str(job_id), attempt], priority=priority, retry=False, connection=link)
    except Exception as error:  # kombu raises many kinds; none of them may reach the person who submitted the job
        log.warning("no worker was woken for job %s, the sweep will: %s", job_id, error)
        Job.objects.filter(id=job_id, attempt=attempt).update(nudged_at=None)
        return False
    Job.objects.filter(id=job_id, attempt=attempt).update(nudged_at=timezone.now())
    return True


def messages_waiting() -> int | None:
    """How many messages no worker has taken yet; None while the broker is away."""
    try:
        with broker_asked(), _links(os.getpid()).acquire(block=True, timeout=ACQUIRE_SECONDS) as link:
            return int(link.default_channel.queue_declare(queue=QUEUE).message_count)
    except Exception as error:  # kombu raises many kinds
        log.warning("the queue can't be counted: %s", error)
        return None
