"""One hold for many calls: never above it, settled at what they came to, and nothing lost where the ledger is away."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from budgets.meter_port import Bill, BudgetRefused, CallKey, FreeMeter, MeterFailure
from budgets.metering.block_meter import BlockMeter
from budgets.pricing import Usage


class Ledger(FreeMeter):
    """Counts; refuses above ``limit``; can be away."""

    def __init__(self, limit: int = 10**9) -> None:
        super().__init__()
        self.limit, self.away, self.booked = limit, False, dict[str, Bill]()

    async def reserve(self, call: CallKey, amount: int) -> None:
        await asyncio.sleep(0.001)  # a transaction
        if self.away:
            raise MeterFailure("the ledger is away")
        if self.spent_micros + self.reserved_micros + amount > self.limit:
            raise BudgetRefused("agent", self.limit, self.spent_micros, self.reserved_micros, amount)
        await super().reserve(call, amount)

    async def book(self, call: CallKey, bill: Bill) -> None:
        if self.away:
            raise MeterFailure("the ledger is away")
        self.booked[call.key] = bill


class Record:
    """The balances that a journal would have: draws less bills by hold."""

    def __init__(self) -> None:
        self.open, self.drawn_by, self.spent = set[str](), dict[str, str](), 0

    def opened(self, hold: CallKey, *, away: bool) -> Any:
        self.open.add(hold.key)
        return hold.key

    def drawn(self, hold: CallKey, call: str, amount: int) -> None:
        assert hold.key in self.open
        self.drawn_by[call] = hold.key

    def billed(self, hold: CallKey, call: str, amount: int) -> None:
        assert self.drawn_by.pop(call) == hold.key
        self.spent += amount

    def closed(self, hold: CallKey, opened: Any) -> None:
        self.open.remove(opened)


def key(n: int) -> CallKey:
    return CallKey(f"c{n}", "production", "small")


async def calls(meter: BlockMeter, numbers: range, worst: int = 100, cost: int = 7) -> None:
    async def one(n: int) -> None:
        await meter.reserve(key(n), worst)
        await asyncio.sleep(0.002)
        await meter.settle(key(n), Bill(cost, Usage(3, 4), "table", 5))

    await asyncio.gather(*(one(n) for n in numbers))


async def test_many_calls_are_a_few_holds_that_come_to_what_the_calls_cost() -> None:
    ledger, record = Ledger(), Record()
    meter = BlockMeter(ledger, record, seconds=0.05)
    for first in range(0, 400, 40):
        await calls(meter, range(first, first + 40))
    await asyncio.sleep(0.2)
    assert len(ledger.holds_micros) < 60 and ledger.spent_micros == record.spent == 400 * 7
    assert ledger.reserved_micros == 0 and not record.open and not record.drawn_by
    assert sum(bill.usage.input_tokens for bill in ledger.bills.values() if bill.usage) == 1_200


async def test_calls_that_come_at_once_wait_for_one_hold_together() -> None:
    ledger = Ledger()
    await calls(BlockMeter(ledger, Record()), range(200))
    assert len(ledger.holds_micros) <= 2


async def test_a_small_call_is_not_refused_for_a_large_ones_sake() -> None:
    meter = BlockMeter(Ledger(limit=100), Record())
    result = await asyncio.gather(
        meter.reserve(key(0), 1_000), meter.reserve(key(1), 2_000), meter.reserve(key(2), 50), return_exceptions=True
    )
    assert [type(one) for one in result] == [BudgetRefused, BudgetRefused, type(None)]


async def test_block_meter_never_holds_what_the_budget_has_not_and_the_last_cents_can_be_spent() -> None:
    ledger = Ledger(limit=1_000)
    meter = BlockMeter(ledger, Record(), seconds=0.01)
    made = 0
    with pytest.raises(BudgetRefused):
        for n in range(500):
            await meter.reserve(key(n), 100)
            await meter.settle(key(n), Bill(7, None, "table"))
            made += 1
            assert ledger.spent_micros + ledger.reserved_micros <= 1_000
            if n % 10 == 0:
                await asyncio.sleep(0.02)
    assert made > 100


async def test_without_the_ledger_the_meter_spends_its_allowance_and_reports_later() -> None:
    ledger, record = Ledger(), Record()
    meter = BlockMeter(ledger, record, allowance_micros=260, seconds=0.02)
    ledger.away = True
    for n in range(3):  # three worst cases would be more; what was not spent is free again
        await meter.reserve(key(n), 100)
        await meter.settle(key(n), Bill(80, None, "table"))
    with pytest.raises(MeterFailure):
        await meter.reserve(key(9), 100)
    await asyncio.sleep(0.05)
    assert not ledger.booked
    ledger.away = False
    await asyncio.sleep(1.2)
    assert sum(bill.amount_micros for bill in ledger.booked.values()) == 240 and not record.open


async def test_closing_settles_everything() -> None:
    ledger, record = Ledger(), Record()
    meter = BlockMeter(ledger, record, seconds=60)
    await calls(meter, range(30))
    await meter.aclose()
    assert ledger.reserved_micros == 0 and ledger.spent_micros == 210 and not record.open


async def test_a_caller_that_is_cancelled_as_its_block_comes_leaves_nothing_open() -> None:
    victims: list[asyncio.Future[None]] = []

    class Cancelling(Ledger):
        async def reserve(self, call: CallKey, amount: int) -> None:
            await super().reserve(call, amount)
            for one in victims:
                asyncio.get_running_loop().call_soon(one.cancel)

    ledger, record = Cancelling(), Record()
    meter = BlockMeter(ledger, record, seconds=0.05)
    for n in range(7):  # the last one has the next block asked for
        await meter.reserve(key(n), 100)
    victims.append(asyncio.ensure_future(meter.reserve(key(7), 100)))
    with pytest.raises(asyncio.CancelledError):
        await victims[0]
    victims.clear()
    for n in range(7):
        await meter.settle(key(n), Bill(7, None, "table"))
    await asyncio.sleep(0.2)
    assert ledger.reserved_micros == 0 and not record.open and ledger.spent_micros == 49
