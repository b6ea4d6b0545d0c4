"""kill -9 of the process that archives a month, at random moments."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from datetime import date
from typing import Any

import pytest
from django.db import connection

from agentcore_site import env
from agentcore_site.ids import uuid7
from experiences.models import Agent, ArchivedJob, TrajectoryArchive, TrajectoryRecord
from experiences.trajectories import storage
from experiences.trajectories.archive.restoring import archived_jobs, job_restore
from experiences.trajectories.archive.rows import marks
from tests.support.rows import group
from tests.support.workers import environment

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.thorough(reason="kills at random moments"),
]

MONTH = date(2020, 1, 1)
KILLS = 3


def test_a_month_is_archived_whole_and_once_though_its_process_is_killed_at_random_moments(agent: Agent) -> None:
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE experiences_trajectory")
    storage.partition_make(MONTH)
    for _ in range(8):
        whose = storage.TrajectoryScope(uuid7(), agent.organization_id, agent.pk, MONTH)
        for iteration in range(25):
            made: Any = group(iteration, 0, 100)
            storage.trajectories_write(whose, made.trajectories)
    before = marks(MONTH)
    command = [sys.executable, str(env.ROOT / "manage.py"), "retention"]
    began = time.monotonic()
    assert (
        subprocess.run([*command, "--dry-run"], env=environment(), timeout=90, stdout=subprocess.DEVNULL).returncode
        == 0
    )
    start = time.monotonic() - began  # what a process takes until it works
    for _ in range(KILLS):
        process = subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(start + random.uniform(-0.3, 2.0))
        process.send_signal(signal.SIGKILL)
        process.wait(10)
    done = subprocess.run(command, env=environment(), timeout=90, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert not TrajectoryRecord.objects.exists()
    kept = ArchivedJob.objects.select_related("archive")
    assert {(one.archive.agent_id, one.job_id): (one.rows, one.mark) for one in kept} == before
    assert TrajectoryArchive.objects.count() == 1
    for one in archived_jobs():
        job_restore(one)
    assert marks(MONTH) == before
