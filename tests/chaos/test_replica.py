"""Lists and exports beside a read replica: never older than the question, and there when the replica is not."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from django.conf import settings
from django.db import connection
from django.test import Client

from agentcore_site.tenancy.actors import Actor
from experiences.models import Agent
from tests import factories
from tests.support.rows import lived_run
from tests.support.standby import Standby, standby
from tests.support.workers import Fleet, eventually

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.thorough(reason="kills at random moments"),
]

LISTS = ("/agents/", "/api/v1/agents", "/api/v1/trajectories")
EXPORT = "/api/v1/trajectories/export?format=jsonl"


@pytest.fixture
def replica(transactional_db: None) -> Iterator[Standby]:
    with standby() as found:
        yield found


def test_lists_are_never_older_than_the_question_and_outlive_the_replica(
    dan: Any, olivia: Any, agent: Agent, replica: Standby, fleet: Fleet
) -> None:
    with connection.cursor() as cursor:  # the shipped value: the tests' server has another one
        cursor.execute("SET synchronous_commit = on")
    run = lived_run(Actor(olivia, interface="test"), agent)
    cookie = Client()
    cookie.force_login(dan)
    session = {settings.SESSION_COOKIE_NAME: cookie.cookies[settings.SESSION_COOKIE_NAME].value}
    port = fleet.web(DATABASE_REPLICA_URL=replica.url, PGOPTIONS="-c synchronous_commit=on")

    with httpx.Client(base_url=f"http://127.0.0.1:{port}", cookies=session, timeout=20) as site:

        def read(source: str) -> float:
            text = site.get("/metrics").text
            match = re.search(rf'^database_replica_reads_total{{source="{source}"}} (\S+)', text, re.MULTILINE)
            return float(match[1]) if match else 0.0

        def made_and_listed(number: int) -> None:
            name = f"Made {number} just now"
            factories.AgentFactory(organization=agent.organization, created_by=olivia, name=name)
            assert name in site.get("/agents/", params={"q": name}).text
            assert name in site.get("/api/v1/agents", params={"search": name}).text

        eventually(lambda: all(site.get(path).status_code == 200 for path in LISTS) and read("replica"))
        lines = site.get(EXPORT, params={"job": str(run.job_id)}).text.splitlines()
        assert len(lines) == 2 * 3 * 4
        for number in range(20):
            made_and_listed(number)
        before = read("replica")
        print(fleet.log.read_text()[-3000:])
        assert before > read("primary")  # it is asked, and it has all that was committed before

        replica.say("SELECT pg_wal_replay_pause()")
        for number in range(20, 25):
            made_and_listed(number)
        assert site.get("/health/").json()["dependencies"]["replica"]["status"] == "ok"
        replica.say("SELECT pg_wal_replay_resume()")
        eventually(lambda: site.get("/agents/") and read("replica") > before, why="it is asked again")

        replica.kill()
        for path in (*LISTS, EXPORT):
            began = time.monotonic()
            assert site.get(path).status_code == 200
            assert time.monotonic() - began < 10  # a busy machine; what is promised is that nothing waits for it
        for number in range(25, 28):
            made_and_listed(number)
        away = eventually(
            lambda: (
                (match := site.get("/health/").json()["dependencies"]["replica"])
                and match["status"] == "degraded"
                and match
            )
        )
        assert away["detail"] == "can't be reached"
