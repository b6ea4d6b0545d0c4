"""Health pages and metrics: their content, their readers, and their answers when a service is away."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test import Client
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families
from redis.exceptions import ConnectionError as RedisAway

from agentcore_site import env, health, prometheus
from agentcore_site.jobs import workers
from agentcore_site.jobs.models import Job, Status
from agentcore_site.tenancy.actors import Actor
from experiences.models import Agent
from tests import factories
from tests.support.owner import as_owner
from tests.support.rows import queued_run
from tests.support.workers import eventually
from training.models import TrainingRun

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def fresh_board() -> None:
    """The findings of another test are not remembered."""
    health.board().forget()


@pytest.fixture
def anybody() -> Client:
    return Client(raise_request_exception=False)


def away(*_: Any, **__: Any) -> Any:
    raise OperationalError("connection to 10.0.0.5 as user secret failed")


# -- health ------------------------------------------------------------------------------------------------------------


def test_live_asks_no_service(anybody: Client, django_assert_num_queries: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redis.Redis.ping", away)
    with django_assert_num_queries(0):
        response = anybody.get("/health/live")
    assert response.status_code == 200 and response.json() == {"status": "ok"}


def asked(path: str = "/health/", person: Any = None) -> Any:
    client = Client(raise_request_exception=False)
    if person is not None:
        client.force_login(person)
    return client.get(path)


@pytest.mark.django_db(transaction=True)
def test_a_stranger_gets_one_word_and_a_member_gets_the_reason(olivia: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(health.CHECKS, "workers", lambda: health.HealthFinding(health.OK, "idle", {"jobs_waiting": 3}))
    for path in ("/health/ready", "/health/"):
        response = asked(path)
        for _ in range(20):  # Redis has a fifth of a second to answer, which a busy machine may take
            if response.json() == {"status": "ok"}:
                break
            health.board().forget()
            response = asked(path)
        assert response.status_code == 200 and response.json() == {"status": "ok"}
        assert "no-store" in response["Cache-Control"]
    assert set(asked("/health/ready", olivia).json()["dependencies"]) == {"database", "migrations", "redis"}
    dependencies = asked(person=olivia).json()["dependencies"]
    assert set(dependencies) == {
        "database", "migrations", "redis", "broker", "workers", "storage", "disk", "nats", "relay", "consumers",
        "warehouse",
    }  # fmt: skip
    assert dependencies["workers"]["jobs_waiting"] == 3
    assert "dependencies" not in asked(person=factories.UserFactory()).json()  # who belongs to no organisation


@pytest.mark.django_db(transaction=True)
def test_nothing_is_asked_again_for_five_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: list[int] = []

    def counted() -> health.HealthFinding:
        rounds.append(1)
        return health.HealthFinding(health.OK, "idle")

    monkeypatch.setitem(health.CHECKS, "workers", counted)
    for _ in range(20):
        asked()
    assert len(rounds) == 1
    monkeypatch.setattr(health, "KEPT_SECONDS", 0.0)
    asked()
    assert len(rounds) == 2


@pytest.mark.django_db(transaction=True)
def test_a_check_that_hangs_holds_up_neither_the_answer_nor_the_other_checks(
    olivia: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    released, ended = threading.Event(), threading.Event()

    def hangs() -> health.HealthFinding:
        released.wait(20)
        ended.set()
        return health.HealthFinding(health.OK, "late")

    monkeypatch.setitem(health.CHECKS, "storage", hangs)
    monkeypatch.setattr(health, "KEPT_SECONDS", 0.0)
    body = asked(person=olivia).json()
    assert not ended.is_set()
    assert body["dependencies"]["storage"]["detail"] == "does not answer" and body["status"] == "degraded"
    assert body["dependencies"]["database"]["status"] == "ok"
    released.set()
    board = health.board()
    eventually(lambda: board.found()["storage"]["detail"] == "late", seconds=5, why="its answer is received again")


@pytest.mark.django_db(transaction=True)
def test_without_redis_a_site_is_degraded_and_not_dead(olivia: Any, settings: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    response = asked("/health/ready", olivia)
    assert response.status_code == 200
    assert response.json()["status"] == "degraded"
    assert response.json()["dependencies"]["redis"]["status"] == "degraded"


def test_without_the_database_a_site_is_not_ready_and_names_no_secret(
    anybody: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(health.CHECKS, "database", away)
    for path in ("/health/ready", "/health/"):
        response = anybody.get(path)
        assert response.status_code == 503 and response.json() == {"status": "down"}
    assert health.board().found()["database"]["detail"] == "can't be reached"


def test_a_missing_migration_is_not_ready() -> None:
    assert health.migrations().status == "ok"
    with as_owner(), connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'site_roof'")
        gone = cursor.rowcount
    migrations = health.migrations()
    assert (
        gone > 1 and migrations.status == "down" and migrations.detail.startswith(f"{gone} migrations are not applied")
    )


def test_a_worker_that_holds_a_job_is_seen(operator: Actor, agent: Agent) -> None:
    result = health.workers()  # no Celery worker runs beside these tests
    assert (result.status, result.detail) == ("degraded", "no worker is seen: jobs wait until one is up")
    assert result.more == {"busy": 0, "answering": 0, "jobs_waiting": 0}
    run = queued_run(operator, agent)
    assert health.workers().more["jobs_waiting"] == 1
    until = timezone.now() + timezone.timedelta(seconds=30)
    Job.objects.filter(id=run.job_id).update(status=Status.RUNNING, lease_until=until, worker="w1")
    result = health.workers()
    assert (result.status, result.more["busy"], result.more["jobs_waiting"]) == ("ok", 1, 0)


def test_a_storage_that_is_away_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django.core.files.storage.default_storage.exists", away)
    assert health.storage().status == "degraded"


def test_a_broker_that_is_away_answers_no_ping(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise RedisAway("away")

    monkeypatch.setattr(workers.app, "connection_for_write", refused)
    seen = workers.workers_seen()
    assert seen.answering is None and seen.state == "unknown"


# -- metrics -----------------------------------------------------------------------------------------------------------


def figures(response: Any) -> dict[str, dict[tuple[str, ...], float]]:
    """Samples by name and label values."""
    assert response.status_code == 200, response.content
    values: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(response.content.decode()):
        for sample in family.samples:
            values.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return values


def test_metrics_count_what_is_active(anybody: Client, operator: Actor, agent: Agent) -> None:
    run = queued_run(operator, agent)
    other = queued_run(operator, factories.AgentFactory(organization=agent.organization))
    TrainingRun.objects.filter(job=run.job).update(cost_micros=1_250_000)
    Job.objects.filter(id=other.job_id).update(status=Status.COMPLETED)
    result = figures(anybody.get("/metrics"))
    assert result["training_jobs_created_total"] == {(): 2.0} and result["jobs_created_total"] == {("training",): 2.0}
    assert result["active_training_jobs"] == {(): 1.0}
    assert result["training_budget_usage_usd"] == {(str(run.job_id),): 1.25}
    assert result["jobs_active"][("training", "queued")] == 1.0
    assert result["jobs_active"][("evaluation", "running")] == 0.0
    assert result["jobs_waiting"] == {(): 1.0}


def test_metrics_have_the_names_of_the_source_documents(anybody: Client, operator: Actor, agent: Agent) -> None:
    queued_run(operator, agent)
    text = anybody.get("/metrics").content.decode()
    for name in (
        "training_jobs_created_total",
        "training_jobs_completed_total",
        "trajectory_generation_seconds",
        "policy_update_seconds",
        "active_training_jobs",
        "training_budget_usage_usd",
        "training_errors_total",
    ):
        assert f"# TYPE {name.removesuffix('_total')}" in text or f"# TYPE {name}" in text, name
    assert "django_http_requests_latency_seconds_by_view_method" in text


def test_with_the_database_away_the_processes_figures_remain(anybody: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "from_database", away)
    response = anybody.get("/metrics")
    assert response.status_code == 200 and b"training_jobs_completed" in response.content
    assert b"10.0.0.5" not in response.content


def test_metrics_page_adds_up_what_web_and_workers_counted(
    anybody: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `manage.py up` has it: each process writes into one folder, and /metrics reads them all."""
    count = (
        "from agentcore_site.jobs import metrics;"
        " [metrics.completed(kind, 'failed') for kind in ('training', 'evaluation')]"
    )
    environment = os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    for _ in range(3):
        subprocess.run([sys.executable, "-c", count], env=environment, cwd=env.ROOT, check=True)
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    result = figures(anybody.get("/metrics"))
    assert result["training_jobs_completed_total"] == {("failed",): 3.0}
    assert result["jobs_completed_total"] == {("evaluation", "failed"): 3.0, ("training", "failed"): 3.0}
    assert result["active_training_jobs"] == {(): 0.0}


@pytest.mark.parametrize(
    ("token", "given", "address", "forwarded", "status"),
    [
        ("", "", "127.0.0.1", "", 200),
        ("", "", "::1", "", 200),
        ("", "", "10.1.2.3", "", 401),
        ("", "", "", "", 401),
        ("", "", "127.0.0.1", "203.0.113.9", 401),
        ("s3cret", "", "127.0.0.1", "", 401),
        ("s3cret", "Bearer wrong", "127.0.0.1", "", 401),
        ("s3cret", "Bearer s3cret", "10.1.2.3", "203.0.113.9", 200),
        ("s3cret", "Bearer ключ", "10.1.2.3", "", 401),
    ],
)
def test_metrics_are_guarded(
    anybody: Client, settings: Any, token: str, given: str, address: str, forwarded: str, status: int
) -> None:
    settings.METRICS_TOKEN = token
    extra = {"HTTP_AUTHORIZATION": given} if given else {}
    if forwarded:
        extra["HTTP_X_FORWARDED_FOR"] = forwarded
    response = anybody.get("/metrics", REMOTE_ADDR=address, **extra)
    assert response.status_code == status
    assert (b"training_jobs_created" in response.content) == (status == 200)


def test_probes_and_prometheus_ask_by_an_address_and_are_sent_to_no_other(anybody: Client, settings: Any) -> None:
    settings.ALLOWED_HOSTS, settings.SECURE_SSL_REDIRECT = [".agentcore.example.org"], True
    for path in ("/health/live", "/metrics"):
        assert anybody.get(path, headers={"Host": "10.1.2.3:8000"}).status_code == 200, path
        # A page of others may let its own name lead to this machine, in the browser of a person who works there.
        assert anybody.get(path, headers={"Host": "rebound.example.net:8000"}).status_code == 400, path
    assert anybody.get("/sign-in/", headers={"Host": "10.1.2.3:8000"}).status_code == 400
