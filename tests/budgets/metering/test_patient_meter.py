"""Many calls at once, each holding its worst case, spend a budget to its end before anybody is refused."""

from __future__ import annotations

import asyncio

import pytest

from budgets.meter_port import Bill, BudgetRefused, CallKey, FreeMeter
from budgets.metering.patient_meter import PatientMeter


class Purse(FreeMeter):
    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    async def reserve(self, call: CallKey, amount: int) -> None:
        if self.spent_micros + self.reserved_micros + amount > self.limit:
            raise BudgetRefused("job", self.limit, self.spent_micros, self.reserved_micros, amount)
        await super().reserve(call, amount)


async def call(meter: PatientMeter, name: str, hold: int, cost: int) -> None:
    key = CallKey(name, "training", "m")
    await meter.reserve(key, hold)
    await asyncio.sleep(0.001)
    await meter.settle(key, Bill(cost, None, "table"))


async def test_calls_wait_for_each_other_and_use_the_money_up() -> None:
    purse = Purse(1_000)
    meter = PatientMeter(purse)
    results = await asyncio.gather(*(call(meter, str(n), 400, 10) for n in range(100)), return_exceptions=True)
    refused = [one for one in results if isinstance(one, BudgetRefused)]
    assert len(results) - len(refused) >= 60  # without patience two of them would have been made
    assert all(one is None or isinstance(one, BudgetRefused) for one in results)
    assert purse.spent_micros > 1_000 - 400 and purse.reserved_micros == 0


async def test_a_call_that_can_never_fit_is_refused_at_once() -> None:
    meter = PatientMeter(Purse(1_000))
    long = asyncio.create_task(call(meter, "long", 900, 900))
    await asyncio.sleep(0)
    with pytest.raises(BudgetRefused):
        await asyncio.wait_for(call(meter, "huge", 1_001, 1), 1)
    await long


async def test_a_cancelled_wait_leaves_nothing_behind() -> None:
    purse = Purse(1_000)
    meter = PatientMeter(purse)
    key = CallKey("first", "training", "m")
    await meter.reserve(key, 900)
    waiting = asyncio.create_task(call(meter, "second", 500, 1))
    await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await meter.settle(key, Bill(5, None, "table"))
    await call(meter, "third", 990, 1)
    assert purse.spent_micros == 6 and purse.reserved_micros == 0


async def test_a_call_waits_for_holds_of_others_up_to_a_limit() -> None:
    """A budget may be shared: its room comes back when calls of another process settle, without a notice here."""
    purse, theirs = Purse(1_000), CallKey("theirs", "training", "m")
    await purse.reserve(theirs, 900)
    meter = PatientMeter(purse, wait_s=5)
    ours = asyncio.create_task(call(meter, "ours", 500, 1))
    await asyncio.sleep(0.3)
    assert not ours.done()
    await purse.settle(theirs, Bill(5, None, "table"))
    await ours
    assert purse.spent_micros == 6

    await purse.reserve(CallKey("theirs again", "training", "m"), 900)
    with pytest.raises(BudgetRefused):
        await asyncio.wait_for(call(PatientMeter(purse, wait_s=0.3), "late", 500, 1), 3)
