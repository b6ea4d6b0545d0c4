"""Workers and beat with a wrong clock, which jumps: jobs go on as if it were right."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from agentcore_site.jobs.models import Job
from agentcore_site.tenancy.actors import Actor
from experiences.models import Agent
from tests import factories
from tests.chaos.test_kill import CONFIG, is_as_if_undisturbed, kill_holder
from tests.support.running import SMALL_POOL, run_to_end
from tests.support.shifted_clock import ShiftedClock
from tests.support.workers import Fleet, environment, eventually
from training.models import TrainingRun
from training.services.runs import run_start

DAY = 24 * 3600
JUMPS = 6

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.thorough(reason="processes with another clock, killed at random moments"),
    pytest.mark.skipif(shutil.which("cc") is None or sys.platform != "linux", reason="the clock is a library in C"),
]


def test_a_clock_that_jumps_by_days_changes_nothing(
    operator: Actor, agent: Agent, acme: Any, broker: Any, tmp_path: Path
) -> None:
    draw = random.Random(seed := random.randrange(10**6))
    print("seed", seed)
    undisturbed = run_start(operator, agent=agent, environment_options=SMALL_POOL, config=CONFIG)
    run_to_end(undisturbed.job)

    clock = ShiftedClock(tmp_path)
    clock.set(draw.choice((-DAY, DAY)))
    said = subprocess.check_output(
        [sys.executable, "-c", "import time; print(time.time())"], env=environment() | clock.environment
    )
    assert abs(float(said) - time.time()) > DAY - 60
    fleet = Fleet()  # its processes begin with the library
    try:
        fleet.worker(**clock.environment)
        fleet.beat(**clock.environment)
        other = factories.AgentFactory(organization=acme, created_by=operator.user)
        run = run_start(operator, agent=other, environment_options=SMALL_POOL, config=CONFIG)
        row = TrainingRun.objects.filter(pk=run.pk)
        for jump in range(JUMPS):
            due = (jump + 1) * CONFIG["n_iterations"] // (JUMPS + 2)  # type: ignore[operator]
            eventually(lambda due=due: row.get().iteration >= due, seconds=settings.JOB_LEASE_SECONDS + 60, every=0.05)
            clock.set(draw.randint(-DAY, DAY))
            if jump % 2 and eventually(lambda: kill_holder(run.job_id), seconds=30, every=0.02):
                print("killed after a jump")  # what takes it up is the sweep, of beat
        eventually(lambda: Job.objects.get(id=run.job_id).ended, seconds=120, why="to end after the last jump")
    finally:
        fleet.stop()
    is_as_if_undisturbed(run, undisturbed)
