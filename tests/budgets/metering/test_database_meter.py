"""The meter: group commit on one thread, cancelled calls, a database that is away."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import OperationalError, connection, connections

from agentcore_site.jobs.models import Job
from budgets import ledger
from budgets.ledger import Hold
from budgets.ledger.accounts import Chain
from budgets.ledger.writer import LedgerWriter
from budgets.meter_port import BudgetRefused, CallKey, Meter
from budgets.metering.database_meter import CallRepeated, DatabaseMeter, LedgerUnavailable
from budgets.models import LedgerEntry, Reservation
from tests.budgets.support import balances, bill, hold, limits_set

pytestmark = pytest.mark.django_db(transaction=True)

CENT = 10_000


@pytest.fixture(autouse=True)
async def connections_closed() -> AsyncIterator[None]:
    """The thread of ``sync_to_async`` keeps its connection; the test's database could not be dropped."""
    yield
    await sync_to_async(connections.close_all)()


def call(key: str) -> CallKey:
    return CallKey(key, "training", "small", iteration=3, rollout="1/2")


def meter_of(chain: Chain, **extra: Any) -> DatabaseMeter:
    return DatabaseMeter(organization_id=chain.organization_id, agent_id=chain.agent_id, job_id=chain.job_id, **extra)


@sync_to_async
def now(chain: Chain) -> list[tuple[int, int, int]]:
    return balances(chain)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not await sync_to_async(true)():
            await asyncio.sleep(0.01)


class Broken:
    """A ledger function that loses its database ``times`` times, before or after the work is done."""

    def __init__(self, function: Callable[[Sequence[Any]], list[Any]], times: int, *, after: bool = False) -> None:
        self.function, self.times, self.after, self.calls = function, times, after, 0

    def __call__(self, work: Sequence[Any]) -> list[Any]:
        self.calls += 1
        broken = self.calls <= self.times
        if broken and not self.after:
            raise OperationalError("the database is away")
        outcomes = self.function(work)
        if broken:
            raise OperationalError("the connection broke in the commit")
        return outcomes


async def test_meter_reserves_and_settles(chain: Chain, job: Job) -> None:
    meter: Meter
    async with meter_of(chain) as meter:
        await meter.reserve(call("a"), 30 * CENT)
        assert await now(chain) == [(0, 30 * CENT, 0)] * 3
        await meter.settle(call("a"), bill(10 * CENT))
        await meter.settle(call("a"), bill(11 * CENT))
    assert await now(chain) == [(10 * CENT, 0, 0)] * 3
    entry = await LedgerEntry.objects.aget(kind="settle")
    assert (entry.job_id, entry.purpose, entry.model, entry.iteration, entry.rollout) == (
        job.id, "training", "small", 3, "1/2",
    )  # fmt: skip


async def test_meter_raises_what_the_client_understands(chain: Chain) -> None:
    async with meter_of(chain) as meter:
        with pytest.raises(BudgetRefused) as refused:
            await meter.reserve(call("a"), 101 * CENT)
    assert refused.value.scope == "job"


async def test_meter_writes_many_calls_in_few_transactions(chain: Chain) -> None:
    async with meter_of(chain) as meter:
        await asyncio.gather(*(meter.reserve(call(str(n)), 100) for n in range(500)))
        reserved = meter.writer.batches
        await asyncio.gather(*(meter.settle(call(str(n)), bill(60)) for n in range(500)))
        await meter.flush()
        assert reserved <= 20 and meter.writer.batches <= 40
        assert meter.writer.written == 1000
    assert await now(chain) == [(500 * 60, 0, 0)] * 3


async def test_many_that_do_not_all_fit_fill_the_budget_to_the_brim(chain: Chain) -> None:
    async with meter_of(chain) as meter:
        asked = (meter.reserve(call(str(n)), 3 * CENT) for n in range(50))
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert sum(outcome is None for outcome in outcomes) == 33
    assert sum(isinstance(outcome, BudgetRefused) for outcome in outcomes) == 17
    assert (await now(chain))[2] == (0, 99 * CENT, 0)


async def test_a_key_is_held_once_and_never_again_after_its_settlement(chain: Chain) -> None:
    async with meter_of(chain) as meter:
        await meter.reserve(call("a"), CENT)
        await meter.reserve(call("a"), CENT)
        assert (await now(chain))[0] == (0, CENT, 0)
        await meter.settle(call("a"), bill(1))
        with pytest.raises(CallRepeated):
            await meter.reserve(call("a"), CENT)
        twice = await asyncio.gather(*(meter.reserve(call("b"), CENT) for _ in range(2)), return_exceptions=True)
        assert sum(isinstance(one, CallRepeated) for one in twice) == 1


async def test_a_worker_that_takes_over_has_holds_of_its_own(chain: Chain) -> None:
    async with meter_of(chain) as dead, meter_of(chain) as alive:
        await dead.reserve(call("a"), CENT)
        await alive.reserve(call("a"), CENT)  # the same call, made again: it may be billed again
        assert (await now(chain))[0] == (0, 2 * CENT, 0)


async def test_a_call_that_is_cancelled_during_its_reservation_gives_its_hold_back(chain: Chain) -> None:
    slow, may = threading.Event(), threading.Event()

    def reserve(holds: Sequence[Hold]) -> list[Any]:
        slow.set()
        may.wait(20)
        return ledger.reserve_many(holds)

    meter = meter_of(chain, writer=(writer := LedgerWriter(reserve=reserve)))
    task = asyncio.create_task(meter.reserve(call("a"), CENT))
    await asyncio.to_thread(slow.wait, 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    may.set()
    await writer.close()
    assert await now(chain) == [(0, 0, 0)] * 3
    assert await Reservation.objects.filter(state="settled", actual_micros=0).acount() == 1


async def test_a_hold_does_not_wait_for_settlements_but_for_their_room(chain: Chain) -> None:
    """Two calls that together need more than the budget: the second one fits once the first is settled."""
    settled: list[int] = []

    def settle(settlements: Sequence[Any]) -> list[Any]:
        settled.append(len(settlements))
        return ledger.settle_many(settlements)

    meter = meter_of(chain, writer=(writer := LedgerWriter(settle=settle, linger=60)))
    await meter.reserve(call("a"), 60 * CENT)
    await meter.settle(call("a"), bill(10 * CENT))
    await meter.reserve(call("b"), 20 * CENT)
    assert settled == [] and (await now(chain))[2] == (0, 80 * CENT, 0)
    await meter.reserve(call("c"), 60 * CENT)
    assert settled == [1] and (await now(chain))[2] == (10 * CENT, 80 * CENT, 0)
    with pytest.raises(BudgetRefused):
        await meter.reserve(call("d"), 60 * CENT)
    await writer.close()


async def test_a_hold_asked_for_again_that_may_have_been_written_is_given_back(chain: Chain) -> None:
    """The connection breaks in the commit of the second try: no call is made, so nothing may stay on hold."""
    broken = Broken(ledger.reserve_many, 0, after=True)
    meter = meter_of(chain, writer=(writer := LedgerWriter(reserve=broken, linger=60)))
    await meter.reserve(call("a"), 60 * CENT)
    await meter.settle(call("a"), bill(10 * CENT))

    def breaks(holds: Sequence[Hold]) -> list[Any]:
        outcomes = ledger.reserve_many(holds)
        if outcomes[0].refusal is None:
            raise OperationalError("the connection broke in the commit")
        return outcomes

    broken.function = breaks
    with pytest.raises(LedgerUnavailable):
        await meter.reserve(call("b"), 80 * CENT)
    await until(lambda: balances(chain) == [(10 * CENT, 0, 0)] * 3)
    await writer.close()


async def test_settlements_are_written_soon_though_holds_keep_coming(chain: Chain) -> None:
    meter = meter_of(chain, writer=(writer := LedgerWriter(linger=0.1)))
    await meter.reserve(call("a"), CENT)
    await meter.settle(call("a"), bill(100))
    ends = asyncio.get_running_loop().time() + 5
    while (await now(chain))[0][0] == 0:
        assert asyncio.get_running_loop().time() < ends
        await meter.reserve(call(str(ends - asyncio.get_running_loop().time())), 1)
    await writer.close()


async def test_a_key_that_was_settled_and_not_yet_written_is_not_held_again(chain: Chain) -> None:
    meter = meter_of(chain, writer=(writer := LedgerWriter(linger=60)))
    await meter.reserve(call("a"), CENT)
    await meter.settle(call("a"), bill(1))
    with pytest.raises(CallRepeated):
        await meter.reserve(call("a"), CENT)
    await writer.close()


async def test_a_connection_that_breaks_in_the_commit_holds_once(chain: Chain) -> None:
    broken = Broken(ledger.reserve_many, 1, after=True)
    meter = meter_of(chain, writer=(writer := LedgerWriter(reserve=broken)))
    await meter.reserve(call("a"), CENT)
    await writer.close()
    assert (broken.calls, (await now(chain))[0]) == (2, (0, CENT, 0))


@pytest.mark.parametrize("after", [False, True])
async def test_meter_fails_closed_and_gives_back_what_may_have_been_written(chain: Chain, after: bool) -> None:
    meter = meter_of(chain, writer=(writer := LedgerWriter(reserve=Broken(ledger.reserve_many, 2, after=after))))
    with pytest.raises(LedgerUnavailable):
        await meter.reserve(call("a"), CENT)
    await until(lambda: balances(chain) == [(0, 0, 0)] * 3)
    await meter.reserve(call("b"), CENT)
    await writer.close()
    assert (await now(chain))[0] == (0, CENT, 0)


async def test_settlements_wait_for_a_database_that_is_away(chain: Chain) -> None:
    broken = Broken(ledger.settle_many, 7)
    meter = meter_of(chain, writer=(writer := LedgerWriter(settle=broken)))
    await asyncio.gather(*(meter.reserve(call(str(n)), CENT) for n in range(10)))
    await asyncio.gather(*(meter.settle(call(str(n)), bill(100)) for n in range(10)))
    await writer.close()
    assert broken.calls > 7
    assert (await now(chain))[0] == (1000, 0, 0)


async def test_nothing_is_reserved_while_settlements_wait(chain: Chain) -> None:
    broken = Broken(ledger.settle_many, 10**9)
    meter = meter_of(chain, writer=(writer := LedgerWriter(settle=broken)))
    await meter.reserve(call("a"), CENT)
    await meter.settle(call("a"), bill(100))
    waiting = asyncio.create_task(meter.flush())
    await until(lambda: broken.calls >= 2)
    with pytest.raises(LedgerUnavailable):
        await meter.reserve(call("b"), CENT)
    broken.times = 0
    await waiting
    await meter.reserve(call("b"), CENT)
    await writer.close()
    assert (await now(chain))[0] == (100, CENT, 0)


async def test_closing_says_what_was_left_unwritten(chain: Chain) -> None:
    meter = meter_of(chain, writer=(writer := LedgerWriter(settle=Broken(ledger.settle_many, 10**9))))
    await meter.reserve(call("a"), CENT)
    await meter.settle(call("a"), bill(100))
    waiting = asyncio.create_task(meter.flush())
    await asyncio.sleep(0.05)
    with pytest.raises(LedgerUnavailable, match="1 settlements could not be written"):
        await writer.close(timeout=0.3)
    with pytest.raises(LedgerUnavailable, match="charged in full"):
        await waiting
    with pytest.raises(LedgerUnavailable, match="closed"):
        await meter.reserve(call("b"), CENT)


async def test_sessions_that_the_server_ends_lose_nothing(chain: Chain) -> None:
    @sync_to_async
    def now_there() -> Any:
        with connection.cursor() as cursor:
            cursor.execute("SELECT clock_timestamp()")
            return cursor.fetchone()[0]

    @sync_to_async
    def end_the_writers() -> None:
        """The sessions that began with this test: a web server of other tests has sessions of its own."""
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database()"
                " AND pid <> pg_backend_pid() AND query LIKE '%%COMMIT%%' AND backend_start >= %s",
                [began],
            )
            assert cursor.rowcount == 1

    began = await now_there()
    async with meter_of(chain) as meter:
        await meter.reserve(call("a"), CENT)
        for n in range(3):
            await end_the_writers()
            await meter.reserve(call(str(n)), CENT)
            await end_the_writers()
            await meter.settle(call(str(n)), bill(100))
            await meter.flush()
        await meter.settle(call("a"), bill(100))
    assert await now(chain) == [(400, 0, 0)] * 3


async def test_an_internal_error_leaves_no_caller_waiting(chain: Chain) -> None:
    def wrong(work: Sequence[Any]) -> list[Any]:
        raise TypeError("a mistake")

    for writer in (LedgerWriter(settle=wrong), LedgerWriter(reserve=wrong)):
        meter = meter_of(chain, writer=writer)
        async with asyncio.timeout(20):
            with pytest.raises(LedgerUnavailable, match="a mistake"):
                await meter.reserve(call("a"), CENT)
                await meter.settle(call("a"), bill(1))
                await meter.flush()
        await writer.close()


async def test_one_that_the_database_refuses_costs_the_others_nothing(chain: Chain) -> None:
    gone = Chain(chain.organization_id, None, None, chain.month, organization_budget=10**9)
    started = threading.Event()

    def reserve(holds: Sequence[Hold]) -> list[Any]:
        started.wait(20)  # until both wait in one batch
        return ledger.reserve_many(holds)

    writer = LedgerWriter(reserve=reserve)
    first = asyncio.create_task(writer.reserve(hold(chain, "first", 1)))
    await asyncio.sleep(0.05)
    rest = [asyncio.create_task(writer.reserve(one)) for one in (hold(gone, "x", 1), hold(chain, "y", CENT))]
    await asyncio.sleep(0.05)
    started.set()
    outcomes = await asyncio.gather(first, *rest, return_exceptions=True)
    await writer.close()
    assert isinstance(outcomes[1], LedgerUnavailable) and "1000000000" in str(outcomes[1])
    assert outcomes[2].fresh
    assert (await now(chain))[0] == (0, CENT + 1, 0)


async def test_meters_of_several_jobs_share_a_writer(chain: Chain, acme: Any) -> None:
    writer = LedgerWriter()
    one, other = meter_of(chain, writer=writer), DatabaseMeter(organization_id=acme.id, writer=writer)
    await asyncio.gather(one.reserve(call("a"), CENT), other.reserve(call("a"), CENT))
    await one.close()  # not its own to close
    await other.settle(call("a"), bill(1))
    await writer.close()
    assert await now(chain) == [(1, CENT, 0), (0, CENT, 0), (0, CENT, 0)]


async def test_a_new_month_has_rows_of_its_own_and_old_holds_settle_on_theirs(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    from datetime import date

    from budgets.metering import database_meter
    from budgets.models import Budget

    await sync_to_async(limits_set)(chain, 10 * CENT, 10 * CENT, 100 * CENT)
    async with meter_of(chain) as meter:
        await meter.reserve(call("old"), 10 * CENT)
        later = date(chain.month.year + 1, 1, 1)
        monkeypatch.setattr(database_meter, "month_of", lambda: later)
        monkeypatch.setattr("budgets.ledger.accounts.month_of", lambda: later)
        await meter.reserve(call("new"), 10 * CENT)
        await meter.settle(call("old"), bill(4 * CENT))
        await meter.settle(call("new"), bill(5 * CENT))
    rows = Budget.objects.filter(owner_id=chain.organization_id).order_by("period_start")
    assert [(row.spent_micros, row.reserved_micros) async for row in rows] == [(4 * CENT, 0), (5 * CENT, 0)]
    assert (await now(chain))[2] == (9 * CENT, 0, 0)
