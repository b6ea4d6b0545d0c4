"""Places and pace per purpose (SPEC A10): training waits for training only, so that it can never starve production."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from budgets.llm.types import Endpoint

TICK: Final = 1e-6  # seconds: less than this is rounding
Sleep = Callable[[float], Awaitable[None]]


class Gate:
    """At most ``places`` requests at once, and at most ``per_minute`` a minute, evenly spaced after a burst of a
    second's worth (the generic cell rate algorithm, ITU-T I.371)."""

    def __init__(
        self,
        *,
        places: int,
        per_minute: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._places = asyncio.Semaphore(places)
        self._interval = 60.0 / per_minute if per_minute else 0.0
        self._burst = max(1.0, self._interval)
        self._due = float("-inf")  # when the next request would be due if all were evenly spaced
        self._clock = clock
        self._sleep = sleep
        self.inside = 0

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Holds a place for the body; waits for one first."""
        async with self._places:
            await self._pace()
            self.inside += 1
            try:
                yield
            finally:
                self.inside -= 1

    async def _pace(self) -> None:
        if not self._interval:
            return
        now = self._clock()
        due = max(self._due, now)
        self._due = due + self._interval
        wait = due + self._interval - self._burst - now
        if wait > TICK:
            await self._sleep(wait)


class Gates:
    """The gates of one endpoint, one per purpose, made when first asked for."""

    def __init__(self, endpoint: Endpoint, *, clock: Callable[[], float], sleep: Sleep) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._sleep = sleep
        self._gates: dict[str, Gate] = {}

    def of(self, purpose: str) -> Gate:
        if purpose not in self._gates:
            endpoint = self._endpoint
            self._gates[purpose] = Gate(
                places=endpoint.concurrency.get(purpose, endpoint.default_concurrency),
                per_minute=endpoint.per_minute.get(purpose),
                clock=self._clock,
                sleep=self._sleep,
            )
        return self._gates[purpose]
