"""Database or broker away, or silent: every interface answers within two seconds, and says what is true."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import psycopg
import pytest
from django.db import connection
from django.test import Client

from agentcore_site import env
from agentcore_site.jobs import lifecycle
from agentcore_site.jobs.models import Status
from agentcore_site.postgresql.watched import PatientConnection
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.roles import SCOPES
from agentcore_site.tenancy.services import api_key_create
from experiences.models import Agent
from tests import factories
from tests.support.away import Cut, site_behind_proxies, stopped_server
from tests.support.pgbouncer import pgbouncer
from tests.support.proxy import Proxy
from tests.support.running import SMALL_POOL
from tests.support.workers import Fleet, environment, eventually
from training.models import Iteration
from training.services.runs import run_start

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.thorough(reason="kills at random moments"),
]

SECONDS = 2.0


@pytest.fixture
def cut(transactional_db: None) -> Iterator[Cut]:
    with site_behind_proxies() as site:
        yield site


class Caller:
    """Olivia's programs and her browser at the real site."""

    def __init__(self, site: str, operator: Actor) -> None:
        _, key = api_key_create(operator, name="wire", scopes=SCOPES)
        browser = Client()
        browser.force_login(operator.user)
        self.http = httpx.Client(base_url=site, timeout=30, headers={"Authorization": f"Bearer {key}"})
        self.browser = httpx.Client(
            base_url=site, timeout=30, cookies={"sessionid": browser.cookies["sessionid"].value}
        )

    def rpc(self) -> httpx.Response:
        return self.http.post("/api/v1/jsonrpc", json={"jsonrpc": "2.0", "method": "training.list_jobs", "id": 1})

    def sample(self) -> dict[str, Callable[[], httpx.Response]]:
        """An address of each kind."""
        rest = ("training-jobs", "me", "budgets")
        pages = ("/", "/jobs/", "/admin/")
        calls: dict[str, Callable[[], httpx.Response]] = {
            one: lambda one=one: self.http.get(f"/api/v1/{one}") for one in rest
        }
        calls |= {page: lambda page=page: self.browser.get(page) for page in pages}
        return calls | {"rpc": self.rpc, "health": lambda: self.http.get("/health/")}


def timed(call: Callable[[], httpx.Response]) -> tuple[float, httpx.Response]:
    began = time.monotonic()
    answer = call()
    return time.monotonic() - began, answer


def test_after_every_session_was_ended_no_request_fails(cut: Cut, operator: Actor) -> None:
    caller = Caller(cut.url, operator)
    for call in caller.sample().values():
        call()
    for _ in range(2):
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid() AND usename = session_user"
            )
            assert cursor.fetchone()[0] > 0
        answers = [caller.http.get("/api/v1/me").status_code for _ in range(25)]
        answers += [caller.browser.get("/jobs/").status_code for _ in range(25)]
        assert answers == [200] * 50
        caller.rpc()


@pytest.mark.alone
@pytest.mark.parametrize("trouble", ["cut", "freeze"])
def test_without_the_database_everything_answers_within_two_seconds(cut: Cut, operator: Actor, trouble: str) -> None:
    caller = Caller(cut.url, operator)
    calm = {name: timed(call) for name, call in caller.sample().items()}
    assert all(answer.status_code in {200, 302, 403} for _, answer in calm.values()), calm
    getattr(cut.database, trouble)()
    time.sleep(5.1)  # what health found before is forgotten by then
    took = {name: timed(call) for name, call in caller.sample().items()}
    assert {answer.status_code for _, answer in took.values()} == {503}
    assert max(seconds for seconds, _ in took.values()) < SECONDS
    assert took["health"][1].json() == {"status": "down"}
    cut.database.heal()
    back = lambda: caller.http.get("/api/v1/me").status_code == 200  # noqa: E731
    eventually(back, seconds=5, why="it is used again as soon as it is back")


@pytest.mark.alone
@pytest.mark.skipif(
    shutil.which("pgbouncer") is None and not os.environ.get("CI"), reason="the program pgbouncer is not installed"
)
def test_a_silent_database_behind_pgbouncer_is_found_as_fast_as_without(
    transactional_db: None, operator: Actor, fleet: Fleet
) -> None:
    """PgBouncer goes on to answer everything that it can answer itself."""
    with pgbouncer() as url, ThreadPoolExecutor(1) as thread:
        site = f"http://127.0.0.1:{fleet.web(DATABASE_URL=url, DB_POOL='12')}"
        caller = Caller(site, operator)
        calm = {name: timed(call) for name, call in caller.sample().items()}
        assert all(answer.status_code in {200, 302, 403} for _, answer in calm.values()), calm
        patient = PatientConnection.connect(url, autocommit=True)  # as workers have it
        with stopped_server():
            given_up = thread.submit(seconds_until_given_up, patient)
            time.sleep(5.1)  # what health found before is forgotten by then
            took = {name: timed(call) for name, call in caller.sample().items()}
            assert {answer.status_code for _, answer in took.values()} == {503}
            assert max(seconds for seconds, _ in took.values()) < SECONDS, took
            assert took["health"][1].json() == {"status": "down"}
            assert 5 < given_up.result(20) < 12
        back = lambda: caller.http.get("/api/v1/me").status_code == 200  # noqa: E731
        eventually(back, seconds=5, why="it is used again as soon as it is back")


def seconds_until_given_up(connection: PatientConnection) -> float:
    began = time.monotonic()
    with pytest.raises(psycopg.OperationalError, match="the database server does not answer"):
        connection.execute("SELECT 1")
    return time.monotonic() - began


SILENT_COMMAND = """
from django.db import connection
connection.ensure_connection()
print("connected", flush=True)
input()
connection.cursor().execute("SELECT 1")
"""


def test_a_command_gives_up_a_database_that_fell_silent(transactional_db: None) -> None:
    """Commands have no pool. One that was connected, and one that connects only then."""
    with Proxy(environment()["DATABASE_URL"]) as way:
        given = environment() | {"DATABASE_URL": way.url}
        shell = [sys.executable, str(env.ROOT / "manage.py"), "shell", "--no-imports", "--command", SILENT_COMMAND]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(shell, env=given, text=True, **pipes) as connected:
            assert connected.stdout is not None and connected.stdout.readline() == "connected\n"
            way.freeze()
            began = time.monotonic()
            with subprocess.Popen(shell, env=given, text=True, **pipes) as connecting:
                errors = [connected.communicate("go\n", timeout=30)[1], connecting.communicate("go\n", timeout=30)[1]]
            assert time.monotonic() - began < 25
    assert "the database server does not answer" in errors[0] and "timeout" in errors[1], errors


def test_a_worker_gives_up_a_database_that_fell_silent_and_its_job_goes_on_afterwards(
    operator: Actor, agent: Agent, fleet: Fleet
) -> None:
    with Proxy(environment()["DATABASE_URL"]) as way:
        fleet.worker(DATABASE_URL=way.url, LOG_LEVEL="WARNING")
        fleet.beat()
        config = {"n_iterations": 2_000, "eval_samples": 1, "early_stopping": {"enabled": False}}
        job = run_start(operator, agent=agent, environment_options=SMALL_POOL, config=config).job
        iterations = Iteration.objects.filter(run__job=job)
        eventually(lambda: iterations.count() >= 5, why="the first iterations")
        way.freeze()
        # Which of its connections finds it first, and whether that one was open, is chance.
        given_up = re.compile("the database server does not answer|connection timeout expired")
        eventually(lambda: given_up.search(fleet.log.read_text()), seconds=30, why="the worker gives it up")
        way.heal()
        before = iterations.count()
        eventually(lambda: iterations.count() > before, seconds=60, why="it goes on")
        job.refresh_from_db()
        assert (job.status, job.error) == (Status.RUNNING, "")
        lifecycle.cancel(None, job)


@pytest.mark.alone
@pytest.mark.parametrize("trouble", ["cut", "freeze"])
def test_without_the_broker_everything_is_answered_and_a_launch_waits_for_nothing(
    cut: Cut, operator: Actor, acme: Organization, trouble: str
) -> None:
    caller = Caller(cut.url, operator)
    agents = [factories.AgentFactory(organization=acme, created_by=operator.user) for _ in range(6)]

    def launch() -> float:
        config = {"n_iterations": 2, "eval_samples": 1}
        given = {"agent": str(agents.pop().id), "environment_options": SMALL_POOL, "config": config}
        seconds, answer = timed(lambda: caller.http.post("/api/v1/training-jobs", json=given))
        assert answer.status_code == 201, answer.text
        return seconds

    for call in caller.sample().values():
        call()
    launch()
    calm = min(launch(), launch())
    getattr(cut.broker, trouble)()
    first, second = launch(), launch()
    assert first < calm + 0.5 and second < calm + 0.3
    time.sleep(5.1)
    took = {name: timed(call) for name, call in caller.sample().items()}
    assert all(answer.status_code in {200, 302, 403} for _, answer in took.values())
    assert max(seconds for seconds, _ in took.values()) < SECONDS
    assert took["health"][1].json()["dependencies"]["redis"]["status"] == "degraded"
