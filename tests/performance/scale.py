"""A site of 1,000,000 trajectories, 10,000 jobs and 5,000 agents: every page and list, and what a trajectory takes."""

from __future__ import annotations

import re
import sys
import time
from http import HTTPStatus
from statistics import median
from typing import Any, Final

from django.db import connection, transaction
from django.db.models import Model
from django.test import Client
from django.utils import timezone

from agentcore_site.jobs.models import Job, JobEvent
from agentcore_site.lib import gc_freeze
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.roles import Role
from budgets.models import Budget
from experiences.models import Agent, GroupRecord, TrajectoryRecord
from experiences.trajectories import storage
from tests import factories
from tests.performance.processor import on_processor
from tests.performance.storage import trajectories
from tests.performance.table import Figure, at_most
from tests.support.owner import as_owner
from tests.support.routes import CONSOLE, rest_reads
from tests.support.rows import lived_run
from tests.test_doors import CONSOLE_WRITES
from training.models import Iteration, PolicyCheckpoint, TrainingRun

JOBS, OF_A_JOB = 10_000, 100
LIMIT_MS: Final = 100
ASKED: Final = 5  # times each, after once for nothing
SLOWEST: Final = 8  # are named


def pages() -> list[Figure]:
    """Milliseconds of processor for each page, in one process, its statements included: time that passes would be that
    of the machine's other work."""
    admin = factories.UserFactory(username="scale", is_staff=True)
    home = factories.OrganizationFactory(slug="scale", name="Scale")
    factories.MembershipFactory(organization=home, user=admin, role=Role.ADMIN)
    run = filled(admin, home)
    connection.settings_dict["CONN_MAX_AGE"] = None  # one session, whose time can be read
    connection.close()
    with connection.cursor() as cursor:  # processes that would help the session are not seen in its time
        cursor.execute("SET max_parallel_workers_per_gather = 0")
    client = Client(headers={"host": "localhost"})
    client.force_login(admin)
    gc_freeze.settle()  # as web processes do
    taken: dict[str, float] = {}
    for address in addresses(run):
        seconds = [asked(client, address) for _ in range(ASKED + 1)][1:]
        if None not in seconds:
            taken[address] = 1000 * median(filter(None, seconds))
    slow = sorted(taken.items(), key=lambda one: -one[1])
    for address, ms in slow:
        print(f"{ms:8.1f} ms  {address}", file=sys.stderr)
    figures = [
        at_most("14", f"of {len(taken)} pages and lists: {re.sub(r'[0-9a-f-]{36}', '…', address)}", ms, LIMIT_MS, "ms")
        for address, ms in slow[:SLOWEST]
    ]
    return [*figures, size()]


def asked(client: Client, address: str) -> float | None:
    """Processor seconds, ours and those of the database's session, until the whole answer is there; None where it is
    not a page."""
    before, began = session_seconds(), time.process_time()
    answer = client.get(address)
    if answer.streaming:
        for _ in answer:
            pass
    if answer.status_code != HTTPStatus.OK:
        return None
    return time.process_time() - began + session_seconds() - before


def session_seconds() -> float:
    connection.ensure_connection()
    assert connection.connection is not None
    return on_processor(connection.connection.info.backend_pid)


def addresses(run: TrainingRun) -> list[str]:
    """Every address that reads, with this run's own names in it."""
    one = TrajectoryRecord.objects.filter(job_id=run.pk).first()
    assert one is not None
    names = {
        "<uuid:agent_id>": run.agent_id,
        "<str:ref>": run.agent.slug,
        "<uuid:job_id>": run.pk,
        "<uuid:trajectory_id>": one.pk,
        "<int:iteration>": one.iteration,
        "<int:scenario>": one.scenario,
        "<uuid:pk>": run.pk,
    }
    found = []
    for route in [*sorted(CONSOLE - set(CONSOLE_WRITES)), *sorted(rest_reads())]:
        for name, value in names.items():
            route = route.replace(name, str(value))
        if "<" not in route and "(?P" not in route and "csv" not in route and "download" not in route:
            found.append(f"/{route}")
    queries = [
        "/agents/?q=agent+49", "/jobs/?q=agent+49", "/jobs/?status=completed&sort=-cost", "/trajectories/?q=sum",
        "/trajectories/?q=quetzal",
        f"/trajectories/?job={run.pk}", "/trajectories/?outcome=wrong", "/trajectories/?min_reward=0.5",
        "/search/?q=agent+4999", "/search/palette/?q=agent+4999", f"/launch/?agent={run.agent_id}",
        "/api/v1/trajectories?limit=200", f"/jobs/compare/?ids={run.pk}",
    ]  # fmt: skip
    return found + queries


# -- rows --------------------------------------------------------------------------------------------------------------


def filled(admin: Any, home: Organization) -> TrainingRun:
    """A site of ``JOBS`` jobs."""
    run = first_run(admin, home)
    grown(run, 1, JOBS)
    settled()
    return run


def first_run(admin: Any, home: Organization) -> TrainingRun:
    """One agent and one finished run, made by the services."""
    agent = factories.AgentFactory(organization=home, created_by=admin, name="Agent 0", slug="agent-0")
    return lived_run(Actor(admin), agent)


def grown(run: TrainingRun, first: int, last: int) -> None:
    """Copies of a run and all that belongs to it, in SQL: jobs ``first`` to ``last``, half as many agents, ``OF_A_JOB``
    trajectories a job."""
    month = timezone.now().date().replace(day=1)
    with transaction.atomic():
        storage.partition_ensure(month)
    ids, agents = ids_of("job"), ids_of("agent")
    jobs, half = (first, last), (first // 2 + 1, last // 2)
    copied(Agent, run.agent_id, half, id=agents, name="'Agent ' || n", slug="'agent-' || n")
    some_agent = agent_of_a_job(last)
    ago = "now() - n * interval '5 minutes'"
    copied(
        Job,
        run.pk,
        jobs,
        id=ids,
        exclusive_key="''",
        created_at=ago,
        started_at=ago,
        finished_at=ago,
        name="'Job ' || n",
    )
    copied(TrainingRun, run.pk, jobs, job_id=ids, agent_id=some_agent, best_checkpoint_id="NULL")
    for iteration in Iteration.objects.filter(run=run):
        copied(Iteration, iteration.pk, jobs, id=None, run_id=ids)
    for event in JobEvent.objects.filter(job=run.job):
        copied(JobEvent, event.pk, jobs, id=None, job_id=ids)
    for checkpoint in PolicyCheckpoint.objects.filter(run=run):
        of = ids_of("checkpoint")
        copied(PolicyCheckpoint, checkpoint.pk, jobs, id=of, run_id=ids, agent_id=some_agent, parent_id="NULL")
    for budget in Budget.objects.filter(job_id=run.pk):
        copied(Budget, budget.pk, jobs, id=None, owner_id=ids, job_id=ids, agent_id=some_agent)
    for group in GroupRecord.objects.filter(job_id=run.pk)[:2]:
        copied(GroupRecord, group.pk, jobs, id=None, job_id=ids)
    if not TrajectoryRecord.objects.filter(month=month, job_id=run.pk, line="model").exists():
        whose = storage.TrajectoryScope(run.pk, run.organization_id, run.agent_id, month, line="model")
        with transaction.atomic():
            storage.trajectories_write(whose, trajectories()[:OF_A_JOB])
    columns = [field.attname for field in TrajectoryRecord._meta.concrete_fields]
    changed = {
        "id": "md5(t.id::text || n)::uuid",
        "job_id": ids,
        "agent_id": some_agent,
        "line": "''",
        "created_at": ago,
    }
    chosen = ", ".join(changed.get(name, f"t.{name}") for name in columns)
    table = storage.partition_of(month)
    for begin in range(first, last + 1, 500):
        with connection.cursor() as cursor:
            cursor.execute(
                f"INSERT INTO {table} ({', '.join(columns)}) SELECT {chosen} FROM {storage.TABLE} t,"
                " generate_series(%s::int, %s::int) n WHERE t.month = %s AND t.job_id = %s"
                " AND t.line = 'model'",
                [begin, min(begin + 499, last), month, run.pk],
            )


def settled() -> None:
    """Tables as autovacuum leaves them within a minute. Tables of others are refused, with a warning."""
    with as_owner(), connection.cursor() as cursor:
        cursor.execute("VACUUM (ANALYZE)")


def ids_of(of: str) -> str:
    """The id of copy ``n`` of this kind, as an expression."""
    return f"md5('{of}' || n::text)::uuid"


def agent_of_a_job(jobs: int) -> str:
    """The agent of job ``n`` of so many, as an expression."""
    return ids_of("agent").replace("n::text", f"(mod(n, {jobs // 2}) + 1)::text")


def copied(model: type[Model], pk: Any, numbers: tuple[int, int], **changes: str | None) -> None:
    """Copies of a row, numbered from the first to the last of ``numbers``; ``changes`` are expressions of ``n``, None:
    the column's default."""
    key = model._meta.pk
    assert key is not None
    columns = [field.column for field in model._meta.concrete_fields if changes.get(field.column, "") is not None]
    chosen = ", ".join(changes.get(name) or f"o.{name}" for name in columns)
    table = model._meta.db_table
    quoted = ", ".join(f'"{name}"' for name in columns)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} ({quoted}) SELECT {chosen} FROM {table} o, generate_series(%s::int, %s::int) n"
            f" WHERE o.{key.column} = %s",
            [*numbers, pk],
        )


def size() -> Figure:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sum(pg_total_relation_size(c.oid)), (SELECT count(*) FROM experiences_trajectory) FROM pg_class c"
            " WHERE c.relname ~ '^experiences_(trajectory_(2|other)|query$)' AND c.relkind = 'r'"
        )
        octets, rows = cursor.fetchone()
    return at_most(
        "14",
        f"10,000 of {rows:,} trajectories on disk, indexes and all",
        octets / rows * 10_000 / 2**20,
        20,
        "MB",
        digits=1,
    )
