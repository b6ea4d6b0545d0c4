"""A job that hangs while its lease is renewed: its process ends itself, and another one takes it up."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from agentcore_site import env
from agentcore_site.jobs.models import Job, Status
from agentcore_site.tenancy.actors import Actor
from experiences.models import Agent
from tests.support.rows import queued_run
from tests.support.workers import Fleet, environment, eventually

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.thorough(reason="a process that hangs"),
]

# Claims a job as a worker does, and then waits for a lock that it holds itself.
HANGS = """
import sys, threading, django
django.setup()
from agentcore_site.jobs.lease import Lease
from agentcore_site.jobs.lifecycle import claim
from agentcore_site.lib.row_scope import everything
with everything(), Lease(claim(sys.argv[1])):
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
"""


def test_a_process_whose_job_stalls_logs_the_place_and_ends(operator: Actor, agent: Agent, fleet: Fleet) -> None:
    run = queued_run(operator, agent)
    extra = {"DJANGO_SETTINGS_MODULE": "agentcore_site.settings", "JOB_STALL_SECONDS": "2"}
    command = [sys.executable, "-c", HANGS, str(run.job_id)]
    hung = subprocess.run(
        command, cwd=env.ROOT, env=environment() | extra, capture_output=True, text=True, timeout=60, check=False
    )
    assert hung.returncode == -signal.SIGKILL, hung.stderr
    assert f"job {run.job_id} hangs for 2 s" in hung.stderr
    assert "most recent call first" in hung.stderr and 'File "<string>", line 10' in hung.stderr  # where it hangs
    assert Job.objects.get(id=run.job_id).status == Status.RUNNING
    fleet.worker()
    fleet.beat()
    eventually(lambda: Job.objects.get(id=run.job_id).status == Status.COMPLETED, seconds=120, why="it stayed hung")
