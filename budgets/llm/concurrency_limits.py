"""Places and pace per purpose: training waits for training only, so that it can never starve production."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from budgets.llm.types import Endpoint

TICK: Final = 1e-6  # seconds: less than this is rounding
Sleep = Callable[[float], Awaitable[None]]


class Pace(Protocol):
    """Turns at one endpoint, evenly spaced after a burst of a second's worth (the generic cell rate algorithm, ITU-T
    I.371). All clients with the same pace share it."""

    async def turn(self, purpose: str, per_minute: int) -> float:
        """Takes the next turn of a purpose, and says in how many seconds it is."""


class OwnPace:
    """The pace of one client."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due: dict[str, float] = {}  # when the next request would be due if all were evenly spaced

    async def turn(self, purpose: str, per_minute: int) -> float:
        interval = 60.0 / per_minute
        now = self._clock()
        due = max(self._due.get(purpose, now), now)
        self._due[purpose] = due + interval
        return due + interval - max(1.0, interval) - now


class ConcurrencyLimit:
    """At most ``slots`` requests at once; each waits for its ``turn`` first, where there is a pace."""

    def __init__(
        self, *, slots: int, turn: Callable[[], Awaitable[float]] | None = None, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._slots = asyncio.Semaphore(slots)
        self._turn = turn
        self._sleep = sleep

    async def __aenter__(self) -> None:
        """Waits for a place, and for its turn; the place is held for the body."""
        await self._slots.acquire()
        try:
            if self._turn is not None and (wait := await self._turn()) > TICK:
                await self._sleep(wait)
        except BaseException:
            self._slots.release()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._slots.release()


class ConcurrencyLimits:
    """The gates of one endpoint, one per purpose, made when first asked for. Belongs to one event loop."""

    def __init__(self, endpoint: Endpoint, *, pace: Pace | None = None, sleep: Sleep = asyncio.sleep) -> None:
        self._endpoint = endpoint
        self._pace = pace or OwnPace()
        self._sleep = sleep
        self._gates: dict[str, ConcurrencyLimit] = {}

    def of(self, purpose: str) -> ConcurrencyLimit:
        if purpose not in self._gates:
            endpoint = self._endpoint
            per_minute = endpoint.per_minute.get(purpose)
            self._gates[purpose] = ConcurrencyLimit(
                slots=endpoint.concurrency.get(purpose, endpoint.default_concurrency),
                turn=None if per_minute is None else lambda: self._pace.turn(purpose, per_minute),
                sleep=self._sleep,
            )
        return self._gates[purpose]
