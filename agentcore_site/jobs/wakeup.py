"""Messages that wake a worker. The row is the truth: the sweep sends a lost message again."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from agentcore_site.celery import app
from agentcore_site.jobs.models import Job
from agentcore_site.lib.broker import broker_asked
from agentcore_site.lib.queues import JOB_QUEUES, job_queue

LINKS: Final = 8
ADVANCE: Final = "jobs.advance"  # the task, by its name: its module is above this one
ACQUIRE_SECONDS: Final = 0.3
AMQP_TIMEOUTS: Final = {"read_timeout": 1, "write_timeout": 1}  # RabbitMQ answers when a message is on disk

log = logging.getLogger(__name__)


@lru_cache(maxsize=1)
def _links(_: int) -> Any:
    """This process's connections for sending, which give up at once; created again after a fork. Connections of workers
    wait longer: they listen."""
    options = settings.CELERY_BROKER_TRANSPORT_OPTIONS | settings.REDIS_TIMEOUTS | AMQP_TIMEOUTS
    options |= {"max_retries": 1, "interval_start": 0}
    return app.connection_for_write(
        transport_options=options, connect_timeout=settings.REDIS_TIMEOUTS["socket_connect_timeout"]
    ).Pool(limit=LINKS)


@contextmanager
def _link() -> Iterator[Any]:
    """A connection to the broker for one question or message. Raises kombu's many kinds of exceptions."""
    pool = _links(os.getpid())
    with broker_asked(settings.CELERY_BROKER_URL), pool.acquire(block=True, timeout=ACQUIRE_SECONDS) as link:
        yield link


def wake_on_commit(job: Job) -> None:
    job_id, attempt, priority = job.id, job.attempt, job.priority
    # A lambda and not a partial: Django's log of a failing robust hook needs a __qualname__.
    transaction.on_commit(lambda: wake(job_id, attempt, priority), robust=True)


def wake(job_id: Any, attempt: int, priority: int) -> bool:
    """Sends the message. False (and a log line) if the broker is unavailable; the sweep will send it again."""
    try:
        with _link() as link:
            app.send_task(ADVANCE, args=[str(job_id), attempt], queue=job_queue(priority), retry=False, connection=link)
    except Exception as error:  # kombu raises many kinds; none of them may reach the person who submitted the job
        log.warning("no worker was woken for job %s, the sweep will: %s", job_id, error)
        Job.objects.filter(id=job_id, attempt=attempt).update(nudged_at=None)
        return False
    Job.objects.filter(id=job_id, attempt=attempt).update(nudged_at=timezone.now())
    return True


def messages_waiting() -> int | None:
    """Number of messages that no worker has taken yet; None while the broker is unavailable."""
    try:
        with _link() as link:
            queues = (app.amqp.queues[name] for name in JOB_QUEUES)
            return sum(queue.queue_declare(channel=link.default_channel).message_count for queue in queues)
    except Exception as error:  # kombu raises many kinds
        log.warning("the queue can't be counted: %s", error)
        return None
