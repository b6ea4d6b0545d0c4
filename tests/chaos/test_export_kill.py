"""kill -9 of the process that writes an export, at random moments."""

from __future__ import annotations

import hashlib
import random
import time

import orjson
import pytest
from django.core.files.storage import default_storage
from django.db import connection

from agentcore_site.jobs.models import ENDED, Job, Status
from agentcore_site.tenancy.actors import Actor
from experiences.models import Agent, TrajectoryExport
from experiences.trajectories.exports.services import export_queue
from experiences.trajectories.exports.stored import stored_part
from experiences.trajectories.storage import trajectories_write
from tests.chaos.test_kill import kill_holder
from tests.support.rows import owner_of, queued_run, trajectory
from tests.support.workers import Fleet, eventually

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.thorough(reason="kills at random moments"),
]

ROWS, LONG, KILLS = 6_000, 30_000, 3  # some 180 MB of JSON, which the database keeps small
TRIES = 3  # exports, of which one is met by a kill before it is done


def killed_at_random(job: Job) -> int:
    """Kills what holds the job, up to ``KILLS`` times, and says how many it met."""

    def held() -> bool:
        response = Job.objects.get(id=job.id)
        return response.status in ENDED or (response.status == Status.RUNNING and response.lease_until is not None)

    kills = 0
    for _ in range(KILLS):
        eventually(held, seconds=90)
        time.sleep(random.uniform(0.0, 1.5))
        kills += kill_holder(job.id)
    return kills


def test_an_export_has_each_row_once_though_its_process_is_killed_at_random_moments(
    operator: Actor, agent: Agent, fleet: Fleet
) -> None:
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE experiences_trajectory")
    run = queued_run(operator, agent)
    Job.objects.filter(id=run.job_id).update(status=Status.CANCELLED)
    for first in range(0, ROWS, 500):
        made = [trajectory(n, 0, 0, f"question {n}", True) for n in range(first, first + 500)]
        for one in made:
            one.steps[0].result["output"] = "x" * LONG
        trajectories_write(owner_of(run), made)
    fleet.worker(JOB_LEASE_SECONDS="5")
    fleet.beat(JOB_LEASE_SECONDS="5")
    for _ in range(TRIES):
        job = export_queue(operator, {"job": str(run.job_id)}, format="jsonl").job
        kills = killed_at_random(job)
        eventually(lambda job=job: Job.objects.get(id=job.id).status in ENDED, seconds=150)
        if kills:
            break
    export = TrajectoryExport.objects.select_related("job").get(pk=job.pk)
    assert export.job.status == Status.COMPLETED and kills, export.job.error
    seen = []
    for part in export.parts.all():
        data = b"".join(stored_part(export, part).read(0, part.size))
        assert hashlib.sha256(data).hexdigest() == part.sha256
        seen += [orjson.loads(line)["iteration"] for line in data.splitlines()]
    assert seen == list(range(ROWS)) and export.rows == ROWS and export.parts.count() > 3
    assert len(default_storage.listdir(export.folder)[1]) == export.parts.count()  # no half part is left
