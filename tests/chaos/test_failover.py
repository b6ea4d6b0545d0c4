"""The primary is killed, and its standby promoted, while a paid job trains and the gateway answers."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.services import api_key_create
from evaluation.serving.deployments.services import deployment_start, serving_change
from evaluation.serving.gate.verdict import GateRule
from evaluation.serving.releases.services import release_make
from tests.chaos.test_database import PRICE, WORLD, learning_agent
from tests.chaos.test_paid_kills import CONCURRENCY, CONFIG
from tests.support.llm_server import ModelServer
from tests.support.playbooks import model_agent
from tests.support.proxy import Proxy
from tests.support.simulated_model import simulated_server
from tests.support.standby import standby
from tests.support.workers import Fleet, eventually
from training.services.runs import run_start

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.thorough(reason="kills at random moments"),
]

CALLERS = 3
KEPT = """
SELECT (SELECT coalesce(sum(n_steps), 0) FROM experiences_trajectory WHERE job_id = %(job)s)
     + (SELECT coalesce(sum(calls), 0) FROM experiences_question WHERE job_id = %(job)s)
"""
RESERVED = "SELECT count(*) FROM budgets_reservation WHERE job_id = %s"
HELD = "SELECT count(*) FROM budgets_reservation WHERE state = 'held'"
ENDED = "SELECT status, error FROM jobs_job WHERE id = %s AND finished_at IS NOT NULL"
ANSWERED = "SELECT count(*) FROM serving_productiontrace WHERE status = 'ok'"


def test_a_standby_is_promoted_and_a_paid_job_and_the_gateway_go_on(
    operator: Actor, adam: Any, acme: Organization, fleet: Fleet, tmp_path: Path
) -> None:
    draw, admin = random.Random(random.random()), Actor(adam, interface="test")
    with (
        simulated_server(WORLD, prices={"small": PRICE}) as paid,
        ModelServer(prices={"small": PRICE}) as served,
    ):
        paid.latency_s = 0.25
        run = run_start(operator, agent=learning_agent(admin, paid), rows=WORLD.rows(80, 7), config=CONFIG)
        clerk = model_agent(admin, served)
        serving_change(admin, clerk, fallbacks=[], while_away_usd=0, gate=GateRule(safety=False))
        deployment_start(admin, release_make(admin, clerk), strategy="immediate")
        _, key = api_key_create(admin, name="shop", scopes=["gateway:call"])
        with standby() as first:
            first.promote()
            eventually(lambda: is_primary(first.url), why="the copy is a primary")
            with standby(first.owner_url) as second, Proxy(first.url) as way:
                first.wait_for_standbys()
                own = {
                    "DATABASE_URL": way.url,
                    "PGOPTIONS": "-c synchronous_commit=on",  # the shipped value; the tests' server has another one
                    "GATEWAY_JOURNAL": str(tmp_path / "journal"),
                    "JOB_LEASE_SECONDS": "5",
                }
                port = fleet.web(**own)
                fleet.worker(concurrency=2, **own)
                fleet.beat(**own)

                def ask(query: str, values: Any = ()) -> list[Any]:
                    with psycopg.connect(second.owner_url, autocommit=True) as session:
                        return session.execute(query, values).fetchall()

                with calls(port, f"agent:{clerk.slug}", key) as statuses:
                    eventually(lambda: paid.owed.answered > 20 and statuses[200] > 5, seconds=60, why="both work")
                    time.sleep(draw.uniform(0, 2))
                    before = statuses[200]
                    first.kill()
                    way.aim(second.url)
                    time.sleep(draw.uniform(0, 3))
                    second.promote()
                    eventually(lambda: statuses[200] > before + 10, seconds=60, why="the gateway answers again")
                    over = eventually(lambda: ask(ENDED, [run.job_id]), seconds=240, why="the job ends")
                print(f"statuses {dict(statuses)}")
                assert over == [("completed", "")]
                assert set(statuses) <= {200, 503}
                [(kept,)] = ask(KEPT, {"job": run.job_id})
                [(reserved,)] = ask(RESERVED, [run.job_id])
                print(f"{paid.owed.requests} calls of the job, {reserved} reservations, {kept} kept")
                assert 0 <= paid.owed.answered - kept <= CONCURRENCY
                assert paid.owed.requests <= reserved
                eventually(lambda: ask(HELD) == [(0,)], seconds=60, why="no hold is left open")
                eventually(lambda: ask(ANSWERED) >= [(statuses[200],)], seconds=30, why="each answer has its trace")
                fleet.stop()


def is_primary(url: str) -> bool:
    with psycopg.connect(url, autocommit=True) as session:
        return session.execute("SELECT pg_is_in_recovery()").fetchone() == (False,)


@contextmanager
def calls(port: int, model: str, key: str) -> Iterator[Counter[int]]:
    """Calls of the gateway, one after the other by each caller. Yields their answers by status."""
    ended, statuses = threading.Event(), Counter[int]()
    body = {"model": model, "messages": [{"role": "user", "content": "?"}]}

    def call() -> None:
        with httpx.Client(headers={"authorization": f"Bearer {key}"}, timeout=60) as http:
            while not ended.wait(0.05):
                statuses[http.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body).status_code] += 1

    callers = [threading.Thread(target=call) for _ in range(CALLERS)]
    for one in callers:
        one.start()
    try:
        yield statuses
    finally:
        ended.set()
        for one in callers:
            one.join()
