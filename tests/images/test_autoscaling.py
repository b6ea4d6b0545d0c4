"""The autoscaler's question, asked of real rows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import yaml
from django.db import connection
from django.utils import timezone

from agentcore_site import env
from agentcore_site.jobs.lifecycle import claim
from agentcore_site.jobs.models import Job, Status
from agentcore_site.lib import row_scope

pytestmark = pytest.mark.django_db
WORKER = list(yaml.safe_load_all((env.ROOT / "docker/k8s/base/worker.yaml").read_text(encoding="utf-8")))
TRIGGER = next(one for one in WORKER if one["kind"] == "ScaledObject")["spec"]["triggers"][0]["metadata"]


def asked() -> int:
    with row_scope.limited(row_scope.NOTHING), connection.cursor() as cursor:  # as a program that knows of no scope
        cursor.execute(TRIGGER["query"])
        (found,) = cursor.fetchone()
    return int(found)


def test_the_autoscaler_counts_jobs_that_wait_or_are_at_work_and_no_others(acme: Any) -> None:
    later = timezone.now() + timedelta(hours=1)
    jobs = [Job(organization=acme, kind="training", title=f"Waits {n}") for n in range(20)]
    jobs += [Job(organization=acme, kind="training", title="Tomorrow", not_before=later)]
    jobs += [
        Job(organization=acme, kind="training", title=status, status=status)
        for status in (Status.PAUSED, Status.COMPLETED, Status.FAILED, Status.CANCELLED)
    ]
    made = Job.objects.bulk_create(jobs)
    assert asked() == 20
    assert claim(made[0].id) is not None
    assert asked() == 20, "a job that a worker holds is work as well"
    Job.objects.filter(id=made[0].id).update(status=Status.COMPLETED, lease_until=None)
    assert asked() == 19
    pods = -(-asked() // int(TRIGGER["targetQueryValue"]))
    assert pods == 3
