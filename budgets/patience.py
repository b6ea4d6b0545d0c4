"""A meter that waits for its own holds before it takes no for an answer. Pure, no Django.

Each call holds its worst case, which is many times what most calls cost. Many at once can hold all of a budget that
has plenty left; a job that paused then would leave most of its money unspent.
"""

from __future__ import annotations

import asyncio

from budgets.meter import Bill, BudgetRefused, CallKey, Meter


class PatientMeter:
    """``Meter`` around another: a refused call tries again whenever one of this meter's own calls has settled.

    It gives up when none is under way any more, or when the call would not fit even if nothing were held.
    """

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._held: set[str] = set()
        self._settled = asyncio.Event()  # of the next settlement; each has one of its own

    async def reserve(self, call: CallKey, amount: int) -> None:
        """Raises BudgetRefused, and whatever the meter raises."""
        while True:
            settled = self._settled
            try:
                await self._meter.reserve(call, amount)
            except BudgetRefused as refusal:
                if refusal.spent + amount > refusal.limit or not (self._held or settled.is_set()):
                    raise
            else:
                self._held.add(call.key)
                return
            await settled.wait()

    async def settle(self, call: CallKey, bill: Bill) -> None:
        try:
            await self._meter.settle(call, bill)
        finally:
            self._held.discard(call.key)
            settled, self._settled = self._settled, asyncio.Event()
            settled.set()
