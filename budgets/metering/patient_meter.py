"""A meter that waits for holds to be settled before it takes no for an answer. Pure, no Django.

Each call holds its worst case, which is many times what most calls cost. Many at once can hold all of a budget that
has plenty left; a job that paused then would leave most of its money unspent.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from budgets.meter_port import Bill, BudgetRefused, CallKey, Meter, SpendingRateFull

WAIT_S: Final = 60.0  # for what others hold in a budget that is shared
SHORTEST, LONGEST = 0.1, 3.0  # seconds until they are asked again


class PatientMeter:
    """``Meter`` around another: a refused call tries again whenever one of this meter's own calls has settled.

    Where only others hold what it lacks, it asks again for ``wait_s`` seconds; so it does where the organisation may
    not spend more in this minute. It gives up at once when the call would not fit even if nothing were held.
    """

    def __init__(self, meter: Meter, *, wait_s: float = WAIT_S) -> None:
        self._meter = meter
        self._wait_s = wait_s
        self._held: set[str] = set()
        self._settled = asyncio.Event()  # of the next settlement; each has one of its own

    async def reserve(self, call: CallKey, amount_micros: int) -> None:
        """Raises BudgetRefused, and what the meter raises."""
        pause, ends = SHORTEST, time.monotonic() + self._wait_s
        while True:
            settled = self._settled
            try:
                await self._meter.reserve(call, amount_micros)
            except SpendingRateFull as full:
                if time.monotonic() + full.retry_after > ends:
                    raise
                await asyncio.sleep(full.retry_after + pause)  # those that wait are not all back at once
                pause = min(2 * pause, LONGEST)
            except BudgetRefused as refusal:
                if refusal.spent_micros + amount_micros > refusal.limit_micros:
                    raise
                if self._held or settled.is_set():
                    await settled.wait()
                elif time.monotonic() < ends:
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, LONGEST)
                else:
                    raise
            else:
                self._held.add(call.key)
                return

    async def settle(self, call: CallKey, bill: Bill) -> None:
        try:
            await self._meter.settle(call, bill)
        finally:
            self._held.discard(call.key)
            settled, self._settled = self._settled, asyncio.Event()
            settled.set()
