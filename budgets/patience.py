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
        self._settled = asyncio.Condition()
        self._count = 0

    async def reserve(self, call: CallKey, amount: int) -> None:
        """Raises BudgetRefused, and whatever the meter raises."""
        while True:
            seen = self._count
            try:
                await self._meter.reserve(call, amount)
            except BudgetRefused as refusal:
                if refusal.spent + amount > refusal.limit or not (self._held or self._count > seen):
                    raise
            else:
                self._held.add(call.key)
                return
            async with self._settled:
                await self._settled.wait_for(lambda before=seen: self._count > before or not self._held)  # type: ignore[misc]

    async def settle(self, call: CallKey, bill: Bill) -> None:
        try:
            await self._meter.settle(call, bill)
        finally:
            async with self._settled:
                self._held.discard(call.key)
                self._count += 1
                self._settled.notify_all()
