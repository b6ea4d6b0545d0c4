"""Each role of ``up`` on a host of its own: a folder of its own, the addresses of what is shared, and one secret."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from django.conf import settings
from django.db.models.functions import Now

from agentcore_site import env
from agentcore_site.embedded.management.commands import up
from agentcore_site.embedded.ports import answers, free_port
from agentcore_site.embedded.reporting import Reporter
from agentcore_site.embedded.stack import Stack
from agentcore_site.jobs.lifecycle import claim
from agentcore_site.jobs.models import HostProcess, Job, Status
from agentcore_site.lib.host_ids import host_id, process_host_id
from agentcore_site.secret_key import require_same
from agentcore_site.views import system
from experiences.models import Agent
from tests.support.running import SMALL_POOL
from tests.support.up import Up
from tests.support.workers import environment, eventually
from training.services.runs import run_start

pytestmark = [
    pytest.mark.thorough(reason="a second program, or a start of the product"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow(reason="three roles are started"),
]
SHARED = ("DATABASE_URL", "DATABASE_OWNER_URL", "REDIS_URL")


class Hosts:
    """Roles, each started as on a host of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._shared = folder, {name: environment()[name] for name in SHARED}
        self.running: list[Up] = []

    def start(self, role: str, *options: str, key: str = settings.SECRET_KEY) -> Up:
        host = self._folder / f"{role}{len(self.running)}"
        host.mkdir()
        started = Up(host, "--role", role, *options, **self._shared, SECRET_KEY=key)
        self.running.append(started)
        return started


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    result = Hosts(tmp_path)
    yield result
    for one in result.running:
        if one.process.poll() is None:
            one.stop()


def test_a_job_is_launched_at_one_host_and_done_at_another(hosts: Hosts, olivia: Any, agent: Agent) -> None:
    port = free_port(0)
    hosts.start("web", "--port", str(port))
    hosts.start("worker", "--workers", "1")
    hosts.start("beat")
    eventually(lambda: answers(port), seconds=90, why="the console answers")
    run = run_start(olivia, agent=agent, environment_options=SMALL_POOL, config={"n_iterations": 3})
    eventually(lambda: Job.objects.get(pk=run.job_id).status == Status.COMPLETED, seconds=120, why="the job is done")
    health = httpx.get(f"http://127.0.0.1:{port}/health/").json()
    assert health["status"] == "ok", health
    eventually(lambda: ticking("web", "gateway", "worker", "helper", "beat"), seconds=30, why="the loop of each turns")
    assert not any((one.data / "run" / "services.json").exists() for one in hosts.running)


def test_a_killed_workers_job_does_not_wait_for_the_end_of_its_lease(hosts: Hosts, olivia: Any, agent: Agent) -> None:
    worker = hosts.start("worker", "--workers", "1")
    hosts.start("beat")
    run = run_start(olivia, agent=agent, environment_options=SMALL_POOL, config={"n_iterations": 10_000})
    job = Job.objects.filter(pk=run.job_id, lease_until__isnull=False)
    held = eventually(lambda: job.filter(attempt__gt=1).first(), seconds=90, why="the worker has the job")
    assert held.worker.startswith(process_host_id(worker.data) + ":")
    os.kill(int(held.worker.rsplit(":", 1)[1]), signal.SIGKILL)
    eventually(lambda: job.filter(attempt__gt=held.attempt), seconds=25, why="a lease takes 30 s")


def test_a_worker_of_another_container_is_not_taken_for_dead(operator: Any, agent: Agent, tmp_path: Path) -> None:
    """One that has the same host name and data folder: its process ids are not ours."""
    run = run_start(operator, agent=agent, environment_options=SMALL_POOL, config={"n_iterations": 1})
    theirs, mine = f"{host_id(tmp_path)}:elsewhere", process_host_id(tmp_path)
    reporter = Reporter("", tmp_path, "worker", list)
    ended = subprocess.run(["/bin/sh", "-c", "echo $$"], capture_output=True, text=True).stdout.strip()
    with psycopg.connect(environment()["DATABASE_URL"], autocommit=True) as connection:
        for place, freed in ((theirs, False), (mine, True)):
            job = claim(run.job_id)
            assert job is not None
            Job.objects.filter(pk=job.pk).update(worker=f"{place}:{ended}")
            reporter.free(connection)
            assert Job.objects.filter(pk=job.pk, lease_until__lt=Now()).exists() == freed, place
            Job.objects.filter(pk=job.pk).update(lease_until=None)


def test_a_worker_and_a_beat_that_hang_are_seen_and_replaced(hosts: Hosts) -> None:
    hosts.start("worker", "--workers", "1")
    hosts.start("beat")
    before = eventually(lambda: ticking("worker", "helper", "beat"), seconds=90, why="all have reported")
    for name in ("worker", "beat"):
        os.kill(before[name], signal.SIGSTOP)
    eventually(lambda: system.processes().filter(state="hangs").count() == 2, seconds=45, why="the page names them")
    after = eventually(
        lambda: (now := ticking("worker", "helper", "beat")) and now["worker"] != before["worker"] and now,
        seconds=45,
        why="they were replaced",
    )
    assert after["beat"] != before["beat"] and after["helper"] == before["helper"]
    for host in hosts.running:
        host.stop()
    assert not HostProcess.objects.exists()


def ticking(*names: str) -> dict[str, int]:
    """Process ids by name, once all of them run; nothing before."""
    result = system.processes().filter(state="running", ticked_at__isnull=False)
    pids: dict[str, int] = dict(result.values_list("name", "pid"))
    return pids if set(pids) == set(names) else {}


@pytest.mark.parametrize(
    ("key", "more", "why"),
    [
        ("another-secret-" * 4, [], "SECRET_KEY is not the one"),
        ("", [], "set SECRET_KEY"),
        (settings.SECRET_KEY, ["--demo"], "The demo needs all roles"),
    ],
    ids=["another key", "no key", "a demo"],
)
def test_a_host_that_can_not_take_part_says_why(hosts: Hosts, key: str, more: list[str], why: str) -> None:
    require_same()
    host = hosts.start("worker", *more, key=key)
    assert host.process.wait(90) != 0
    assert why in host.path.read_text(encoding="utf-8")


SESSIONS = """
import django
django.setup()
from django.db import connection
for _ in range(10):
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        print(*cursor.fetchone(), type(connection.connection).__name__)
    connection.close()  # as Celery does after each task
"""


def test_short_tasks_keep_a_session_of_the_database_that_has_patience(tmp_path: Path) -> None:
    processes = up.Command()._processes(Stack(tmp_path, lambda line: None), 0, 1, "127.0.0.1")
    [helper] = [process for process in processes if process.name == "helper"]
    given = environment() | helper.environment | {"DJANGO_SETTINGS_MODULE": "agentcore_site.settings"}
    done = subprocess.run([sys.executable, "-c", SESSIONS], env=given, cwd=env.ROOT, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 10 and len(set(lines)) < 5, done.stderr  # a pool may open another one while one is busy
    assert all(line.endswith(" PatientConnection") for line in lines)
