"""Jobs with the brokers of many hosts: RabbitMQ with quorum queues, and Valkey under Sentinels."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from kombu.exceptions import OperationalError

from agentcore_site.celery import app
from agentcore_site.embedded.ports import free_port
from agentcore_site.jobs.models import Job, Priority, Status
from agentcore_site.lib.queues import broker_settings
from agentcore_site.lib.redis_address import AnyPool, channels_host, sentinels_of
from experiences.models import Agent
from tests.support.rabbitmq import SERVER, RabbitNode, rabbitmq
from tests.support.running import SMALL_POOL
from tests.support.sentinels import PRIMARY, Watched, sentinels
from tests.support.workers import Fleet, eventually
from training.services.runs import run_start

pytestmark = pytest.mark.thorough(reason="a second program, or a start of the product")

SENTINELS = f"redis+sentinel://:p%40ss@one,two:26380/{PRIMARY}/3"


@pytest.mark.fast
def test_an_address_with_sentinels_is_passed_in_the_form_of_each_library() -> None:
    result = sentinels_of(SENTINELS)
    assert result and result.nodes == (("one", 26379), ("two", 26380)) and result.login == {"password": "p@ss"}
    address, options, queues = broker_settings(SENTINELS)
    assert address == "sentinel://:p%40ss@one:26379/3;sentinel://:p%40ss@two:26380/3"
    assert options["master_name"] == PRIMARY
    assert sorted(queue.name for queue in queues) == ["compute.0", "compute.3", "compute.6", "default"]
    assert channels_host(SENTINELS)["master_name"] == PRIMARY and channels_host("redis://one/0") == "redis://one/0"
    assert AnyPool.from_url("redis://one:7/2").connection_kwargs["db"] == 2


@pytest.mark.fast
@pytest.mark.parametrize(
    "wrong", ["redis+sentinel://one:26379", "redis+sentinel:///name/0", "redis+sentinel://one/name/x"]
)
def test_an_address_with_sentinels_that_says_too_little_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="an address with Sentinels is"):
        sentinels_of(wrong)


@pytest.fixture(scope="module")
def rabbit() -> Iterator[RabbitNode]:
    with rabbitmq() as [node]:
        yield node


@pytest.fixture(scope="module")
def watched() -> Iterator[Watched]:
    with sentinels() as found:
        yield found


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    result = Fleet()
    yield result
    result.stop()


def launched(operator: Any, agent: Agent, iterations: int, priority: Priority = Priority.NORMAL) -> Job:
    config = {"n_iterations": iterations, "early_stopping": {"enabled": False}}
    return run_start(operator, agent=agent, environment_options=SMALL_POOL, config=config, priority=priority).job


def done(job: Job) -> bool:
    job.refresh_from_db()
    return job.status == Status.COMPLETED


def started(job: Job) -> bool:
    job.refresh_from_db()
    return job.progress > 0


@pytest.mark.django_db(transaction=True)
@pytest.mark.slow(reason="a broker is started, killed and started again")
@pytest.mark.skipif(not SERVER.exists() and not os.environ.get("CI"), reason="RabbitMQ is not installed")
def test_jobs_go_on_over_a_killed_rabbitmq(rabbit: RabbitNode, fleet: Fleet, operator: Any, agent: Agent) -> None:
    broker = {"CELERY_BROKER_URL": rabbit.url}
    fleet.worker(**broker)
    fleet.beat(**broker)
    job = launched(operator, agent, 400)
    eventually(lambda: started(job), seconds=90, why="the job has begun")
    assert "quorum" in rabbit.control("list_queues", "name", "type")
    rabbit.kill()
    assert not done(job), "the job ended before its broker"
    rabbit.start()
    eventually(lambda: done(job), seconds=120, why="the job is done")


def test_a_worker_asks_each_second_for_a_broker_that_is_away() -> None:
    waits: list[float] = []
    away = f"amqp://guest:guest@127.0.0.1:{free_port(0)}//"
    with app.connection_for_read(away) as connection, pytest.raises(OperationalError):
        connection.ensure_connection(lambda error, wait: waits.append(wait), 3)  # as Celery's consumer does
    assert waits == [1, 1, 1]


@pytest.mark.django_db(transaction=True)
@pytest.mark.slow(reason="a failover of Sentinels takes seconds")
def test_jobs_and_the_console_go_on_over_a_failover_of_sentinels(
    watched: Watched, fleet: Fleet, operator: Any, agent: Agent
) -> None:
    redis = {"REDIS_URL": watched.url}
    port = fleet.web(**redis)
    fleet.worker(**redis)
    fleet.beat(**redis)
    job = launched(operator, agent, 400)
    eventually(lambda: started(job), seconds=90, why="the job has begun")
    before = watched.primary()
    watched.kill(before)
    assert not done(job), "the job ended before the failover"
    eventually(lambda: watched.primary() != before, seconds=30, why="the replica is primary")
    eventually(lambda: done(job), seconds=120, why="the job is done")
    assert health(port) == "ok"


def health(port: int) -> str:
    import httpx

    answer = eventually(
        lambda: (found := httpx.get(f"http://127.0.0.1:{port}/health/ready").json())["status"] == "ok" and found,
        seconds=30,
        why="Redis is seen again",
    )
    return str(answer["status"])
