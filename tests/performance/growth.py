"""Growth without a bend: the same site with 1, 10 and 100 times as many rows, and the exponents of what it does.

At 100 times: 10,000 jobs, 5,000 agents, 1,000,000 trajectories, 50,000 lessons, 200,000 ledger entries, production
traces and published events. Each exponent is the slope of log(processor seconds) over log(rows), by least squares: 0 is
work that rows do not slow down, 1 is work in proportion to them.
"""

from __future__ import annotations

import io
import math
import sys
import time
from collections.abc import Callable
from statistics import median, quantiles
from typing import Any, Final

import numpy as np
from celery import current_app
from django.conf import settings
from django.db import connection
from django.test import Client
from django.utils import timezone

from agentcore_site.lib import gc_freeze
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.roles import Role
from budgets.ledger import Hold, reserve, settle
from budgets.ledger.accounts import chain_open
from budgets.ledger.days import days_sum
from budgets.meter_port import Bill
from budgets.models import LedgerEntry
from budgets.pricing import Usage
from evaluation.events.models import OutboxEvent
from evaluation.serving.models import ProductionTrace
from experiences.models import Experience
from experiences.trajectories.exports.formats import FORMATS, portions
from experiences.trajectories.exports.selection import export_start
from tests import factories
from tests.performance.scale import (
    OF_A_JOB,
    addresses,
    agent_of_a_job,
    asked,
    copied,
    first_run,
    grown,
    ids_of,
    session_seconds,
    settled,
)
from tests.performance.table import Figure, at_most
from training.models import TrainingRun

SIZES: Final = (100, 1_000, 10_000)  # jobs
LESSONS, OTHERS = 5, 20  # of a job: lessons; ledger entries, traces and events each
TIMES: Final = 3  # each work is done, after once for nothing
SLOWEST: Final = 4  # are named
LEAST_MS: Final = 1.0  # shorter work has no exponent that differs from the clock's noise


def growth() -> list[Figure]:
    """Exponents of pages, of background work when nothing is due, and of an export of all trajectories."""
    run = _site()
    connection.settings_dict["CONN_MAX_AGE"] = None  # one session, whose time can be read
    connection.close()
    with connection.cursor() as cursor:  # processes that would help the session are not seen in its time
        cursor.execute("SET max_parallel_workers_per_gather = 0")
    client = Client(headers={"host": "localhost"})
    client.force_login(run.agent.created_by)
    gc_freeze.settle()
    found: list[dict[str, dict[str, float]]] = []
    before = 0
    for jobs in SIZES:
        grown(run, before + 1, jobs)
        _others(run, before + 1, jobs)
        days_sum()  # as beat does each hour
        settled()
        before = jobs
        found.append({"page": _pages(client, run), "task": _tasks(), "export": _export(run)})
        print(f"{jobs:,} jobs: {_words(found[-1])}", file=sys.stderr)
    pages, tasks = _exponents(found, "page"), _exponents(found, "task")
    return [
        *_named(pages, "page", 0.1),
        _total(found, "page", 0.1, "95 % of the pages", lambda ms: quantiles(ms, n=20)[-1]),
        *_named(tasks, "task", 1.05),
        _total(found, "task", 1.05, "all scheduled work, nothing due", sum),
        _total(found, "export", 1.05, f"export of {SIZES[-1] * OF_A_JOB:,} trajectories", sum),
    ]


def exponent(sizes: tuple[int, ...], values: list[float]) -> float:
    """The slope of log(value) over log(size), by least squares."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def _site() -> TrainingRun:
    admin = factories.UserFactory(username="growth", is_staff=True)
    home = factories.OrganizationFactory(slug="growth", name="Growth")
    factories.MembershipFactory(organization=home, user=admin, role=Role.ADMIN)
    run = first_run(admin, home)
    TrainingRun.objects.filter(pk=run.pk).update(verdict={"verdict": "No proven difference."})  # no proof is due
    owner = {"organization": home, "agent": run.agent}
    factories.ExperienceFactory(agent=run.agent)
    ProductionTrace.objects.create(
        **owner,
        model="small",
        status="ok",
        reward=1.0,
        request={"messages": [{"role": "user", "content": "Where is my order? It was sent on Monday."}]},
        response={"role": "assistant", "content": "It comes tomorrow."},
    )
    chain = chain_open(home.pk, agent_id=run.agent_id, job_id=run.pk)
    reserve(Hold("growth", chain, 500, "training", "bench"))
    settle("growth", Bill(400, Usage(900, 120), "provider", latency_ms=500))
    OutboxEvent.objects.create(
        message_id=run.pk, organization_id=home.pk, kind="trajectory", key=run.pk, settled_at=timezone.now()
    )
    return run


def _others(run: TrainingRun, first: int, last: int) -> None:
    """Other rows that grow with a site. Entries of the ledger and events name jobs and agents; nothing is due."""
    agent, ago = agent_of_a_job(last), "now() - n * interval '10 seconds'"
    lesson, trace = Experience.objects.get(agent=run.agent), ProductionTrace.objects.get(agent=run.agent)
    entry, event = LedgerEntry.objects.filter(job_id=run.pk).latest("id"), OutboxEvent.objects.filter(key=run.pk)[0]
    lessons = ((first - 1) * LESSONS + 1, last * LESSONS)
    others = ((first - 1) * OTHERS + 1, last * OTHERS)
    copied(
        Experience,
        lesson.pk,
        lessons,
        id=ids_of("lesson"),
        agent_id=agent,
        handle="'g' || n",
        summary="'When an order has ' || n || ' parts, do one at a time.'",
    )
    copied(ProductionTrace, trace.pk, others, id=ids_of("trace"), agent_id=agent, created_at=ago)
    copied(LedgerEntry, entry.pk, others, id=None, job_id=ids_of("job").replace("n", f"(mod(n, {last}) + 1)"), at=ago)
    copied(OutboxEvent, event.pk, others, id=None, message_id=ids_of("event"), created_at=ago)


def _pages(client: Client, run: TrainingRun) -> dict[str, float]:
    found = {}
    for address in addresses(run):
        seconds = [asked(client, address) for _ in range(TIMES + 1)][1:]
        if None not in seconds:
            found[address.replace(str(run.pk), "…").replace(str(run.agent_id), "…")] = _ms(filter(None, seconds))
    return found


def _tasks() -> dict[str, float]:
    """Each task that beat sends. The first call of a task does what the new rows left for it, and does not count."""
    current_app.loader.import_default_modules()
    names = sorted({one["task"] for one in settings.CELERY_BEAT_SCHEDULE.values()})
    return {name: _ms([_seconds(current_app.tasks[name]) for _ in range(TIMES + 1)][1:]) for name in names}


def _export(run: TrainingRun) -> dict[str, float]:
    def export() -> None:
        writer, file = FORMATS["jsonl"].writer(), io.BytesIO()
        for rows, _ in portions(export_start(Actor(run.agent.created_by), {}, format="jsonl"), "jsonl"):
            file.seek(0)
            file.write(writer.write(rows)[0])

    return {"jsonl": _ms([_seconds(export)])}


def _seconds(work: Callable[[], Any]) -> float:
    """Processor seconds, ours and those of the database's session."""
    before, began = session_seconds(), time.process_time()
    work()
    return time.process_time() - began + session_seconds() - before


def _ms(seconds: Any) -> float:
    return 1000 * median(seconds)


def _exponents(found: list[dict[str, dict[str, float]]], kind: str) -> dict[str, tuple[float, list[float]]]:
    """By name: the exponent, and the milliseconds at each size."""
    names = set.intersection(*(set(one[kind]) for one in found))
    taken = {name: [one[kind][name] for one in found] for name in names}
    return {name: (exponent(SIZES, ms), ms) for name, ms in taken.items() if min(ms) >= LEAST_MS}


def _named(exponents: dict[str, tuple[float, list[float]]], kind: str, limit: float) -> list[Figure]:
    worst = sorted(exponents.items(), key=lambda one: -one[1][0])[:SLOWEST]
    return [
        at_most("39.11", f"{kind} {name}: {_row(ms)}", max(slope, 0.0), limit, "", digits=3)
        for name, (slope, ms) in worst
    ]


def _total(
    found: list[dict[str, dict[str, float]]], kind: str, limit: float, words: str, of: Callable[[list[float]], float]
) -> Figure:
    ms = [of(list(one[kind].values())) for one in found]
    return _figure(words, ms, exponent(SIZES, ms), limit)


def _figure(words: str, ms: list[float], slope: float, limit: float) -> Figure:
    return at_most("P14", f"exponent of {words}: {_row(ms)}", max(slope, 0.0), limit, "", digits=3)


def _row(ms: list[float]) -> str:
    return " → ".join(f"{one:,.0f}" if one >= 10 else f"{one:.1f}" for one in ms) + " ms"


def _words(found: dict[str, dict[str, float]]) -> str:
    return ", ".join(f"{len(values)} of {kind}, {math.fsum(values.values()):,.0f} ms" for kind, values in found.items())
