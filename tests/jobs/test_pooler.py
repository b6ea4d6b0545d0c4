"""Web, workers and beat behind PgBouncer in transaction mode."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from django.db import OperationalError, connection, transaction

from agentcore_site.jobs.models import Job, Status
from agentcore_site.lib.database import copying, trouble_in
from agentcore_site.postgresql.watched import WatchedConnection
from agentcore_site.tenancy.actors import Actor
from experiences.models import Agent, TrajectoryRecord
from tests.support.backends import end_session
from tests.support.pgbouncer import CONNECTIONS, pgbouncer
from tests.support.running import SMALL_POOL
from tests.support.workers import Fleet, environment, eventually
from training.services.runs import run_start

pytestmark = [
    pytest.mark.thorough(reason="a second program, or a start of the product"),
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


@pytest.fixture
def pooled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The test's own connection goes through PgBouncer."""
    connection.close()
    with pgbouncer() as url:
        monkeypatch.setitem(connection.settings_dict, "PORT", str(urlsplit(url).port))
        yield
        connection.close()


@pytest.mark.parametrize("moment", ["before it begins", "while rows are written", "while rows are read"])
def test_a_session_that_ends_in_a_copy_is_trouble_of_the_database_and_no_mistake(pooled: None, moment: str) -> None:
    """The pooler reports it in an answer of its own beside the server's. A job that took two answers for a mistake in
    its statement failed for good."""
    with pytest.raises(OperationalError) as caught, transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("CREATE TEMPORARY TABLE copied (n integer) ON COMMIT DROP")
            cursor.execute("INSERT INTO copied SELECT generate_series(1, 500000)")
            cursor.execute("SELECT pg_backend_pid()")
            [pid] = cursor.fetchone()
        if moment == "before it begins":
            end_session(pid)
        command = "COPY copied TO STDOUT" if moment == "while rows are read" else "COPY copied FROM STDIN"
        with copying(command) as copy:
            if moment == "while rows are read":
                rows = copy.rows()
                next(rows)
                end_session(pid)
                for _ in rows:
                    pass
            else:
                copy.write_row([1])
                end_session(pid)
    assert trouble_in(caught.value) is not None
