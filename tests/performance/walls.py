"""The cost of row security on the hot paths: with it and without it, in turns within one run."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from unittest import mock

from django.db import connection, transaction
from django.db.models import F
from django.test import Client

from agentcore_site import row_security
from agentcore_site.ids import uuid7
from agentcore_site.jobs.events import event_add
from agentcore_site.jobs.models import Job
from agentcore_site.lib import row_scope
from agentcore_site.tenancy.models import Organization
from budgets.ledger import Hold, Settlement, reserve_many, settle_many
from budgets.meter_port import Bill
from budgets.pricing import Usage
from experiences.trajectories.storage import groups_write, partition_ensure, trajectories_write
from tests.performance.jobs import people, start
from tests.performance.ledger import nested
from tests.performance.storage import MONTH, emptied, owner, trajectories
from tests.performance.table import Figure, at_most
from tests.support.owner import as_owner
from tests.support.rows import group, owner_of
from training.models import Iteration, TrainingRun

ROUNDS = 30
WARM = 5
BATCH = 500
BILL = Bill(400, Usage(900, 120), "provider", latency_ms=500)


@contextmanager
def wall(organization: uuid.UUID, *, enabled: bool) -> Iterator[None]:
    """Policies with the scope that statements set, or neither."""
    verb = "ENABLE" if enabled else "DISABLE"
    with as_owner(), connection.cursor() as cursor:
        for model in row_security.tenant_models():
            cursor.execute(f"ALTER TABLE {model._meta.db_table} {verb} ROW LEVEL SECURITY")
    if enabled:
        with row_scope.only(organization):
            yield
    else:
        with mock.patch.object(row_scope, "in_force", return_value=row_scope.NOTHING):  # no scope is set
            yield


def in_turns(act: Callable[[int], None], organization: uuid.UUID, *, rounds: int = ROUNDS, times: int = 20) -> float:
    """The percent by which ``act`` takes longer with row security: medians of all, ``times`` in each round."""
    took: dict[bool, list[float]] = {True: [], False: []}
    for number in range(2 * rounds):
        enabled = number % 2 == 0
        with wall(organization, enabled=enabled):
            for _ in range(WARM):  # a change of policies makes every session read its tables' descriptions again
                act(-1)
            for n in range(times):
                began = time.perf_counter()
                act(number * times + n)
                took[enabled].append(time.perf_counter() - began)
    return 100 * (median(took[True]) / median(took[False]) - 1)


def costs() -> list[Figure]:
    actor, home = people()
    key_of = _key(actor, home)
    run = start(actor, home, "walled", n_iterations=10_000, seed=3)
    with transaction.atomic():
        partition_ensure(MONTH)
    rows = trajectories()[:BATCH]

    def copied(_: int) -> None:
        with transaction.atomic():
            trajectories_write(owner(home.id), rows)

    def status(_: int) -> None:
        assert client.get(f"/api/v1/training-jobs/{run.job_id}", **key_of).status_code == 200

    chain = nested()[0]

    def paid(_: int) -> None:
        keys = [uuid7().hex for _ in range(20)]
        reserve_many([Hold(key, chain, 500, "training", "bench") for key in keys])
        settle_many([Settlement(key, BILL) for key in keys])

    client = Client(SERVER_NAME="localhost")
    numbers = iter(range(1, 10**6))
    found = {
        "COPY of 500 trajectories": in_turns(copied, home.id, rounds=8, times=3),
        "bookkeeping of an iteration": in_turns(lambda _: _booked(run, next(numbers)), home.id),
        "a job's state over REST": in_turns(status, home.id),
        "20 calls held and settled": in_turns(paid, chain.organization_id),
    }
    emptied()
    with wall(home.id, enabled=True):
        return [at_most("S9", f"second wall, {what}", more, 5, "% more", digits=1) for what, more in found.items()]


def _booked(run: TrainingRun, number: int) -> None:
    """The statements of an iteration that are not the algorithm's."""
    groups = [group(number, scenario, 4) for scenario in range(4)]
    scope = owner_of(run)
    with transaction.atomic():
        Job.objects.filter(id=run.job_id).update(progress=0.5, crashes=0)
        trajectories_write(scope, [one for made in groups for one in made.trajectories])
        groups_write(scope, number, groups)
        Iteration.objects.create(
            run=run, number=number, trajectories=16, cost_micros=1, metrics={}, rollout_ms=1.0, update_ms=1.0
        )
        TrainingRun.objects.filter(job_id=run.job_id).update(trajectories=F("trajectories") + 16, iteration=number)
        event_add(run.job, "iteration", message="Iteration.", data={"n": number})


def _key(actor: object, home: Organization) -> dict[str, str]:
    from agentcore_site.tenancy.services import api_key_create

    _, key = api_key_create(actor, name="bench", scopes=["training:view"], organization=home)
    return {"HTTP_AUTHORIZATION": f"Bearer {key}"}
