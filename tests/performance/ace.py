"""Playbooks: contexts given out by the real server with authentication, and how many agents one worker can evolve."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from django.db import connection

from agentcore_site.jobs.models import ENDED, Job, Status
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.services import api_key_create
from budgets.services import price_set
from experiences.models import Agent, Playbook
from experiences.playbooks.services.evolutions import evolution_queue
from experiences.playbooks.services.executions import NewTrace, traces_record
from experiences.playbooks.services.playbooks import playbook_create, playbook_edit
from tests import factories
from tests.performance.jobs import people
from tests.performance.table import Figure, at_least, at_most
from tests.support.llm_server import ModelServer
from tests.support.playbooks import PRICE, TEXTS, add, deployed, suggesting
from tests.support.workers import Fleet, eventually

AGENTS = 50
RATE, SECONDS, CONNECTIONS = 1_000, 10, 32
EVOLVING = 10
CLIENT = Path(__file__).with_name("ace_client.py")


def playbooks(actor: Actor, home: Any, n: int, name: str, **agent: Any) -> list[Playbook]:
    """Each with ten sections of a usual length."""
    sections = [{"category": "learnings", "content": text} for text in TEXTS]
    found = []
    for number in range(n):
        one = factories.AgentFactory(
            organization=home, created_by=actor.user, name=f"{name} {number}", slug=f"{name}-{number}", **agent
        )
        found.append(playbook_create(actor, agent=one, initial_sections=sections))
    return found


def ask(port: int, key: str, rate: float, paths: list[str]) -> dict[str, Any]:
    command = [sys.executable, str(CLIENT), str(port), key, str(rate), str(SECONDS), str(CONNECTIONS), *paths]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS + 60)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def contexts() -> list[Figure]:
    """One web process as ``manage.py up`` runs it, 50 agents whose items are left out at the default rate, a playbook
    changed and deployed five times a second meanwhile."""
    actor, home = people()
    _, key = api_key_create(actor, name="bench", scopes=["service:internal"])
    books = playbooks(actor, home, AGENTS, "context", leave_out_rate=Agent._meta.get_field("leave_out_rate").default)
    for one in books:
        deployed(actor, one)
    paths = [f"/internal/ace/playbooks/{one.agent_id}/context" for one in books]
    fleet, over = Fleet(), threading.Event()

    def change() -> None:
        number = 0
        while not over.wait(0.2):
            book = Playbook.objects.get(id=books[number % AGENTS].id)
            playbook_edit(actor, book, type="update", target="s1", content=f"Ask for the order {number} first.")
            deployed(actor, book)
            number += 1
        connection.close()

    try:
        port = fleet.web()
        ask(port, key, 50, paths)
        changing = threading.Thread(target=change)
        changing.start()
        paced, most = ask(port, key, RATE, paths), ask(port, key, 0, paths)
    finally:
        over.set()
        fleet.stop()
    changing.join()
    assert paced["wrong"] == most["wrong"] == 0, (paced, most)
    what = f"contexts at {RATE:,}/s over {SECONDS} s, one web process"
    return [
        at_most("X10", f"{what}, p95", paced["p95"], 50, "ms"),
        at_most("X10", "the same, the goal", paced["p95"], 10, "ms"),
        at_least("X10", f"the most that {CONNECTIONS} connections got", most["rate"], RATE, "requests/s", digits=0),
    ]


def evolutions() -> list[Figure]:
    """Ten agents on one worker process, with a model that takes two seconds: evolutions an hour."""
    actor, home = people()
    fleet = Fleet()
    said = suggesting(add("Ask twice when a number looks wrong."), add("Weekend orders leave on Monday."))
    with ModelServer(brain=lambda _: said, latency_s=2.0, prices={"small": PRICE}) as model:
        admin = Actor(factories.UserFactory(username="bench-root", is_superuser=True))
        price_set(admin, model="small", input_micros=PRICE[0], output_micros=PRICE[1])
        endpoint = factories.ModelEndpointFactory(organization=home, base_url=model.base_url)
        books = playbooks(actor, home, EVOLVING, "evolve", endpoint=endpoint, runtime="llm", evolves=True)
        for book in books:
            traces_record(actor, [NewTrace(book.agent, {"q": k}, {"a": k}, 100.0, k > 2) for k in range(9)])
        try:
            fleet.worker(TRUSTED_SOURCES="executions")
            fleet.beat()
            jobs = [evolution_queue(actor, book).job.id for book in books]
            rows = Job.objects.filter(id__in=jobs)
            eventually(lambda: rows.filter(status__in=ENDED).count() == EVOLVING, seconds=180, why="evolutions")
        finally:
            fleet.stop()
    assert rows.filter(status=Status.COMPLETED).count() == EVOLVING, list(rows.values_list("status", "error"))
    times = rows.values_list("started_at", "finished_at")
    seconds = max(end for _, end in times) - min(begin for begin, _ in times)
    an_hour = 3600 * EVOLVING / seconds.total_seconds()
    return [at_least("X9", "evolutions, one worker, a model of 2 s", an_hour, 100, "agents/hour", digits=0)]
