"""B2: what a hold costs in time, as a ratio to the least that any ledger must do, and the storm of 64 spenders."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from django.db import connection, transaction

from agentcore_site.ids import uuid7
from agentcore_site.jobs.models import Job
from budgets.ledger import Hold, reserve, settle
from budgets.ledger.accounts import Chain, chain_open, owners
from budgets.meter_port import Bill, CallKey
from budgets.metering.database_meter import DatabaseMeter
from budgets.models import Budget
from budgets.pricing import Usage
from budgets.services import limit_change
from tests import factories
from tests.budgets.storm import storm
from tests.performance.table import Figure, at_least, at_most

PAIRS = 300
AT_ONCE = 500
ROUNDS = 1_000
BILL = Bill(400, Usage(900, 120), "provider", latency_ms=500)


def nested() -> tuple[Chain, list[Chain], list[Any]]:
    """A job of an agent of an organisation with limits on each: its chain, the three chains, the three owners."""
    home = factories.OrganizationFactory()
    agent = factories.AgentFactory(organization=home)
    job = Job.objects.create(organization=home, kind="training")
    three = owners(home.id, agent.id, job.id)
    for owner in three:
        limit_change(None, owner, 10**12)
    chains = [
        chain_open(home.id),
        chain_open(home.id, agent_id=agent.id),
        chain_open(home.id, agent_id=agent.id, job_id=job.id),
    ]
    return chains[-1], chains, three


def bare(budget: int) -> None:
    """The least: two transactions with one conditional UPDATE each."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            'UPDATE budgets_budget SET reserved = reserved + 1 WHERE id = %s AND spent + reserved + 1 <= "limit"',
            [budget],
        )
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("UPDATE budgets_budget SET reserved = reserved - 1, spent = spent + 1 WHERE id = %s", [budget])


def timed(act: Callable[[], Any]) -> float:
    began = time.perf_counter()
    act()
    return 1000 * (time.perf_counter() - began)


def pairs() -> list[Figure]:
    """Reserve and settle, one after the other, on one connection: three budgets, reservation, two ledger entries."""
    chain, _, _ = nested()
    other = nested()[0].organization_budget

    def ours() -> None:
        key = uuid7().hex
        reserve(Hold(key, chain, 500, "training", "bench"))
        settle(key, BILL)

    mine, least = [], []
    for _ in range(PAIRS):  # taken in turns, so that a busy moment of the machine falls on both
        mine.append(timed(ours))
        least.append(timed(lambda: bare(other)))
    Budget.objects.filter(id=other).update(spent_micros=0, reserved_micros=0)  # it was moved without a ledger
    return [
        at_most("B2", "reserve + settle, median", median(mine), 3, "ms"),
        at_most("B2", "reserve + settle, times a bare pair of UPDATEs", median(mine) / median(least), 8, "x", digits=1),
    ]


def together() -> list[Figure]:
    """Group commit: 500 calls that reserve at once, and settle at once."""
    chain, _, _ = nested()

    async def all_at_once() -> tuple[float, float, int]:
        async with DatabaseMeter(
            organization_id=chain.organization_id, agent_id=chain.agent_id, job_id=chain.job_id
        ) as meter:
            await meter.reserve(CallKey("first", "training", "bench"), 1)  # opens connection and chain
            calls = [CallKey(str(n), "training", "bench") for n in range(AT_ONCE)]
            before, began = meter.writer.batches, time.perf_counter()
            await asyncio.gather(*(meter.reserve(call, 500) for call in calls))
            middle = time.perf_counter()
            await asyncio.gather(*(meter.settle(call, BILL) for call in calls))
            await meter.flush()
            return middle - began, time.perf_counter() - middle, meter.writer.batches - before

    held, settled, batches = asyncio.run(all_at_once())
    return [
        at_most("B2", f"{AT_ONCE} calls reserve at once", 1000 * held, 250, "ms", digits=0),
        at_most("B2", f"{AT_ONCE} calls settle at once", 1000 * settled, 250, "ms", digits=0),
        at_most("B2", f"transactions for {AT_ONCE} reserves and settles", batches, 50, "", digits=0),
    ]


def killed() -> list[Figure]:
    """64 spenders, 1,000 rounds of kill -9."""
    _, chains, three = nested()
    for owner, limit in zip(three, [150_000, 100_000, 40_000], strict=True):
        limit_change(None, owner, limit)
    report = storm(chains, three, rounds=ROUNDS)
    broken = len(report.wrong) + len(report.differences) + report.left_reserved + len(report.errors.splitlines())
    return [
        at_least("B2", f"rounds of kill -9 ({report.settled:,} calls settled)", report.rounds, ROUNDS, "", digits=0),
        # 0 of 1 holds; one or more does not.
        at_most("B2", f"contradictions at {report.checks:,} checks and in the end", broken, 0.5, "", digits=0),
    ]
