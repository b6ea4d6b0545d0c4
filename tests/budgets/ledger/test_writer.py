"""The writer of holds and bills, where its callers leave, its batches are long, or the database refuses one of them."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import OperationalError, connections

from agentcore_site.tenancy.models import Organization
from budgets.ledger import Reserved, Settlement, reserve_many, settle_many
from budgets.ledger.accounts import Chain, chain_open
from budgets.ledger.writer import BATCH, LedgerUnavailable, LedgerWriter
from budgets.meter_port import Bill
from budgets.models import Budget, Reservation
from budgets.pricing import Usage
from tests.budgets.support import balances, bill, hold, limits_set
from tests.support.owner import as_owner

pytestmark = pytest.mark.django_db(transaction=True)

CENT = 10_000
Written = Callable[[Sequence[Any]], list[Any]]


@pytest.fixture(autouse=True)
async def connections_closed() -> AsyncIterator[None]:
    """The thread of ``sync_to_async`` keeps its connection; the test's database could not be dropped."""
    yield
    await sync_to_async(connections.close_all)()


class HeldUp:
    """A function of the ledger that waits in its first call until ``go``: what is asked meanwhile comes in one batch.
    ``then``: what it does from the second call on, where that is something else."""

    def __init__(self, function: Written, then: Written | None = None) -> None:
        self._function, self._then = function, then
        self._came, self._may = threading.Event(), threading.Event()
        self.sizes: list[int] = []

    def __call__(self, work: Sequence[Any]) -> list[Any]:
        self.sizes.append(len(work))
        self._came.set()
        assert self._may.wait(20)
        return (self._then or self._function)(work) if len(self.sizes) > 1 else self._function(work)

    async def came(self) -> None:
        assert await asyncio.to_thread(self._came.wait, 20)

    def go(self) -> None:
        self._may.set()


class Away:
    """A function of the ledger whose database is away for so many calls."""

    def __init__(self, function: Written, calls: int) -> None:
        self.function, self.left, self.calls = function, calls, 0

    def __call__(self, work: Sequence[Any]) -> list[Any]:
        self.calls += 1
        if self.calls <= self.left:
            raise OperationalError("the database is away")
        return self.function(work)


@sync_to_async
def now(chain: Chain) -> tuple[int, int, int]:
    """Of the organisation."""
    return balances(chain)[0]


def asked(writer: LedgerWriter, *holds: Any) -> list[asyncio.Task[Reserved]]:
    return [asyncio.ensure_future(writer.reserve(one)) for one in holds]


async def test_a_batch_is_never_longer_than_a_thousand(chain: Chain) -> None:
    reserve = HeldUp(reserve_many)
    writer = LedgerWriter(reserve=reserve)
    first = asked(writer, hold(chain, "first", 1))
    await reserve.came()
    rest = asked(writer, *(hold(chain, str(n), 10) for n in range(BATCH + 200)))
    await asyncio.sleep(0)  # each of them asks
    reserve.go()
    outcomes = await asyncio.gather(*first, *rest)
    await writer.close()
    assert all(one.fresh for one in outcomes) and reserve.sizes == [1, BATCH, 200]
    assert await now(chain) == (0, 1 + 10 * (BATCH + 200), 0)


async def test_a_call_that_is_cancelled_in_the_batch_of_its_hold_gives_the_hold_back(chain: Chain) -> None:
    reserve = HeldUp(reserve_many)
    writer = LedgerWriter(reserve=reserve)
    first = asked(writer, hold(chain, "first", CENT))
    await reserve.came()
    second = asked(writer, hold(chain, "cancelled", CENT))
    await asyncio.sleep(0)
    writer.settle(Settlement("cancelled", Bill(0, None, "none", error="cancelled before the call")))
    reserve.go()
    await asyncio.gather(*first, *second)
    await writer.close()
    assert reserve.sizes == [1, 1] and await now(chain) == (0, CENT, 0)
    assert await Reservation.objects.filter(key="cancelled", state="settled", actual_micros=0).aexists()


async def test_callers_whose_event_loop_is_gone_keep_no_other_waiting(
    chain: Chain, caplog: pytest.LogCaptureFixture
) -> None:
    reserve = HeldUp(reserve_many)
    writer = LedgerWriter(reserve=reserve)

    def asks_and_leaves() -> None:
        loop = asyncio.new_event_loop()
        asking = loop.create_task(writer.reserve(hold(chain, "left behind", CENT)))
        loop.run_until_complete(asyncio.sleep(0))
        asking.cancel()
        loop.run_until_complete(asyncio.gather(asking, return_exceptions=True))
        loop.close()

    await asyncio.to_thread(asks_and_leaves)
    await reserve.came()
    with caplog.at_level(logging.INFO, logger="budgets.ledger.writer"):
        second = asked(writer, hold(chain, "second", CENT))
        reserve.go()
        assert (await second[0]).fresh
    await writer.close()
    assert "1 outcomes found their event loop closed" in caplog.text
    assert await now(chain) == (0, 2 * CENT, 0)


async def test_a_mistake_of_ours_in_a_batch_loses_no_other_bill_of_the_batch(chain: Chain) -> None:
    def wrong(work: Sequence[Any]) -> list[Any]:
        raise TypeError("a mistake")

    reserve = HeldUp(reserve_many, then=wrong)
    writer = LedgerWriter(reserve=reserve)
    first = asked(writer, hold(chain, "first", 3 * CENT))
    await reserve.came()
    writer.settle(Settlement("first", bill(CENT)))
    second = asked(writer, hold(chain, "second", CENT))
    await asyncio.sleep(0)
    reserve.go()
    await asyncio.gather(*first)
    with pytest.raises(LedgerUnavailable, match="a mistake"):
        await second[0]
    await writer.flush()
    assert await now(chain) == (CENT, 0, 0)
    await writer.close()


async def test_a_bill_that_the_database_refuses_costs_the_others_nothing(
    chain: Chain, caplog: pytest.LogCaptureFixture
) -> None:
    writer = LedgerWriter(linger=60)
    await asyncio.gather(*asked(writer, hold(chain, "odd", CENT), hold(chain, "good", CENT)))
    writer.settle(Settlement("odd", Bill(100, Usage(10**20, 1), "provider")))  # more tokens than a column takes
    writer.settle(Settlement("good", bill(200)))
    await writer.flush()
    await writer.close()
    assert "a batch of 2 was refused" in caplog.text
    assert await now(chain) == (200, CENT, 0)


async def test_a_bill_without_a_hold_is_reported_and_moves_nothing(
    chain: Chain, caplog: pytest.LogCaptureFixture
) -> None:
    writer = LedgerWriter()
    writer.settle(Settlement("never held", bill(500)))
    writer.settle(Settlement("never held either", bill(0)))
    await writer.close()
    assert "a bill of 500 micro-dollars came without a hold: never held" in caplog.text
    assert "either" not in caplog.text and await now(chain) == (0, 0, 0)


async def test_a_hold_is_refused_while_the_bills_that_would_make_room_can_not_be_written(chain: Chain) -> None:
    settle = Away(settle_many, 2)
    writer = LedgerWriter(settle=settle, linger=60)
    await asyncio.gather(*asked(writer, hold(chain, "a", 60 * CENT)))
    writer.settle(Settlement("a", bill(10 * CENT)))
    [outcome] = await asyncio.gather(*asked(writer, hold(chain, "b", 80 * CENT)))
    assert outcome.refusal is not None and outcome.refusal.scope == "job"
    await writer.flush()
    [outcome] = await asyncio.gather(*asked(writer, hold(chain, "b", 80 * CENT)))
    assert outcome.fresh and await now(chain) == (10 * CENT, 80 * CENT, 0)
    await writer.close()


async def test_a_hold_whose_budget_goes_while_room_is_made_stays_refused(
    chain: Chain, elsewhere: Organization, caplog: pytest.LogCaptureFixture
) -> None:
    """An organisation is erased between the refusal and the second look."""
    erased = await sync_to_async(chain_open)(elsewhere.id)
    await sync_to_async(limits_set)(erased, 0)

    def settle(work: Sequence[Any]) -> list[Any]:
        outcomes = settle_many(work)
        with as_owner():
            Budget.objects.filter(id=erased.organization_budget).delete()
        return outcomes

    writer = LedgerWriter(settle=settle, linger=60)
    await asyncio.gather(*asked(writer, hold(chain, "a", CENT)))
    writer.settle(Settlement("a", bill(100)))
    [outcome] = await asyncio.gather(*asked(writer, hold(erased, "b", CENT)))
    await writer.close()
    assert outcome.refusal is not None and outcome.refusal.budget == erased.organization_budget
    assert "holds that were refused could not be asked for again" in caplog.text
    assert await now(chain) == (100, 0, 0)


async def test_bills_that_come_while_others_wait_for_the_database_queue_behind_them(chain: Chain) -> None:
    settle = Away(settle_many, 10**9)
    writer = LedgerWriter(settle=settle)
    await asyncio.gather(*asked(writer, hold(chain, "a", CENT), hold(chain, "b", CENT)))
    writer.settle(Settlement("a", bill(100)))
    async with asyncio.timeout(20):
        while settle.calls < 6:  # three tries of two calls; the next one comes in a second
            await asyncio.sleep(0.005)
    writer.settle(Settlement("b", bill(200)))
    await asyncio.sleep(0.3)
    assert settle.calls == 6
    settle.left = 0
    await writer.flush()
    await writer.close()
    assert await now(chain) == (300, 0, 0)


def test_a_writer_that_wrote_nothing_has_nothing_to_close() -> None:
    writer = LedgerWriter()
    writer.close_now()
    with pytest.raises(LedgerUnavailable, match="closed"):
        writer.settle(Settlement("a", bill(1)))
