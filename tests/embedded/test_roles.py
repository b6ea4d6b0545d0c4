"""Each role of ``up`` on a host of its own: a folder of its own, the addresses of what is shared, and one secret."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.conf import settings

from agentcore_site.embedded.ports import answers, free_port
from agentcore_site.jobs.models import Job, Status
from agentcore_site.secret_key import require_same
from experiences.models import Agent
from tests.support.running import SMALL_POOL
from tests.support.up import Up
from tests.support.workers import environment, eventually
from training.services.runs import run_start

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow(reason="three roles are started")]
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
    found = Hosts(tmp_path)
    yield found
    for one in found.running:
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
    assert not any((one.data / "run" / "services.json").exists() for one in hosts.running)


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
