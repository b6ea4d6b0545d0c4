"""Web, workers and beat behind PgBouncer in transaction mode."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from agentcore_site.jobs.models import Job, Status
from agentcore_site.postgresql.watched import WatchedConnection
from agentcore_site.tenancy.actors import Actor
from experiences.models import Agent, TrajectoryRecord
from tests.support.pgbouncer import CONNECTIONS, pgbouncer
from tests.support.running import SMALL_POOL
from tests.support.workers import Fleet, environment, eventually
from training.services.runs import run_start

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(
        shutil.which("pgbouncer") is None and not os.environ.get("CI"), reason="the program pgbouncer is not installed"
    ),
]


def test_a_job_runs_to_its_end_behind_pgbouncer(
    operator: Actor, agent: Agent, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pgbouncer() as url:
        monkeypatch.setenv("DATABASE_URL", url)
        site = f"http://127.0.0.1:{fleet.web()}"
        fleet.worker(concurrency=2)
        fleet.beat()
        run = run_start(operator, agent=agent, environment_options=SMALL_POOL, config={"n_iterations": 12})
        job = Job.objects.filter(id=run.job_id)
        ended = eventually(lambda: job.filter(finished_at__isnull=False).first(), why="the job ends", seconds=120)
        assert ended.status == Status.COMPLETED, ended.error
        assert httpx.get(f"{site}/health/ready").json()["status"] == "ok"
        fleet.stop()
    assert TrajectoryRecord.objects.filter(job_id=run.job_id).exists()


def test_slow_statements_behind_pgbouncer_take_their_time_also_where_its_pool_is_used_up(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statement is no sign of a silent server. In a pool that is used up the question would wait too: it has an
    address of its own."""
    monkeypatch.setenv("DATABASE_PROBE_URL", environment()["DATABASE_URL"])

    def slow(url: str) -> Any:
        with WatchedConnection.connect(url, autocommit=True) as made:
            return made.execute("SELECT pg_sleep(2), 1").fetchone()

    with pgbouncer() as url, ThreadPoolExecutor(CONNECTIONS + 1) as threads:
        done = [threads.submit(slow, url) for _ in range(CONNECTIONS + 1)]
        assert [one.result(20)[1] for one in done] == [1] * (CONNECTIONS + 1)
