"""Messages that wake workers: one for each job that waits, however long no worker comes, and none stays lost."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import redis
from django.conf import settings
from django.utils import timezone

from agentcore_site.jobs import lifecycle, tasks, wakeup
from agentcore_site.jobs.models import Job

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def empty_queue() -> None:
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        client.flushall()


def waiting(organization: Any, n: int) -> None:
    Job.objects.bulk_create(
        Job(organization=organization, kind="count", title=f"{i}", priority=(0, 3, 6)[i % 3]) for i in range(n)
    )


def hours_later() -> None:
    Job.objects.filter(nudged_at__isnull=False).update(nudged_at=timezone.now() - timedelta(hours=1))


def test_while_no_worker_comes_there_is_one_message_for_each_job(acme: Any) -> None:
    waiting(acme, 120)
    assert tasks.sweep() == 120
    for _ in range(20):
        hours_later()
        assert tasks.sweep() == 0
    assert wakeup.messages_waiting() == 120


def test_messages_that_were_lost_are_sent_again_within_a_minute(acme: Any) -> None:
    waiting(acme, 30)
    tasks.sweep()
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        client.flushall()
    assert tasks.sweep() == 0  # they may have been taken just now
    Job.objects.update(nudged_at=timezone.now() - timedelta(seconds=46))
    assert tasks.sweep() == 30 and tasks.sweep() == 0
    assert wakeup.messages_waiting() == 30


def test_a_job_whose_worker_died_is_rung_for_by_the_next_sweep_and_once(acme: Any) -> None:
    waiting(acme, 1)
    tasks.sweep()
    job = lifecycle.claim(Job.objects.get().id)
    assert job is not None and Job.objects.get().nudged_at is None
    Job.objects.update(lease_until="2000-01-01T00:00:00Z")
    assert tasks.sweep() == 1
    before = wakeup.messages_waiting()
    for _ in range(5):
        tasks.sweep()
    assert wakeup.messages_waiting() == before
