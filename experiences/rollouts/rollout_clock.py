"""The time that a rollout has for itself. The clock stops while a model's service is waited for: retries, queues and a
judge's verdict are not the agent's doing. Pure."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Final

# What was just answered and paid for is recorded before time is up.
GRACE_S: Final = 1.0


class Clock:
    """``seconds`` of own time, from now on. Belongs to one event loop, in which calls may overlap."""

    def __init__(self, seconds: float) -> None:
        self._ends = time.monotonic() + seconds
        self._timeout: asyncio.Timeout | None = None
        self._waits = 0
        self._paused_at = self._counted = 0.0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Raises TimeoutError in the body once the time is over; ``over`` distinguishes it from other TimeoutErrors."""
        token = _current.set(self)
        try:
            async with asyncio.timeout_at(self._when(self._ends)) as self._timeout:
                yield
        finally:
            self._timeout = None
            _current.reset(token)

    @property
    def over(self) -> bool:
        return not self._waits and time.monotonic() >= self._ends

    def pause(self) -> None:
        """A service is waited for from now on. Each call is followed by one of ``resume``."""
        self._waits += 1
        if self._waits == 1:
            self._paused_at, self._counted = time.monotonic(), 0.0
            self._reschedule(None)

    def resume(self, counted: float = 0.0) -> None:
        """The wait is over; ``counted`` seconds of it were the rollout's own time. Overlapping waits count once."""
        self._waits -= 1
        self._counted += counted
        if self._waits == 0:
            now = time.monotonic()
            paused = now - self._paused_at
            self._ends += paused - min(self._counted, paused)
            self._reschedule(max(self._ends, now + GRACE_S))

    def _reschedule(self, ends: float | None) -> None:
        timeout = self._timeout
        if timeout is not None and not timeout.expired():
            timeout.reschedule(None if ends is None else self._when(ends))

    @staticmethod
    def _when(ends: float) -> float:
        return asyncio.get_running_loop().time() + ends - time.monotonic()


class _Endless(Clock):
    """A clock without a limit, used outside of rollouts."""

    def __init__(self) -> None:
        super().__init__(float("inf"))

    def pause(self) -> None:
        pass

    def resume(self, counted: float = 0.0) -> None:
        pass


_ENDLESS: Final = _Endless()
_current: ContextVar[Clock] = ContextVar("rollout_clock", default=_ENDLESS)


def current_clock() -> Clock:
    """The clock of the rollout that is under way in this task."""
    return _current.get()
