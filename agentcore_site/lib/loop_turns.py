"""Turns at the event loop for tasks whose data is already there: without a pause they would keep all others out."""

from __future__ import annotations

import asyncio
from typing import Final
from weakref import WeakKeyDictionary

TURN_BYTES: Final = 16 * 1024  # about half a millisecond of events
EVENT_BYTES: Final = 200  # what an event without a byte costs
REST_SECONDS: Final = 0.001

_queues: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]] = WeakKeyDictionary()


class LoopTurns:
    """The turns of one task. After each, the loop and its threads are free for a moment; of all tasks that have turns
    only the next one goes on then."""

    def __init__(self, turn_bytes: int = TURN_BYTES) -> None:
        self._turn = self._left = turn_bytes

    async def worked(self, size: int) -> None:
        """Counts the work on an event of ``size`` bytes, and waits for the next turn where this one is used up."""
        self._left -= size + EVENT_BYTES
        if self._left <= 0:
            async with _queue():
                await asyncio.sleep(REST_SECONDS)
            self._left = self._turn


def _queue() -> asyncio.Lock:
    loop = asyncio.get_running_loop()
    if (found := _queues.get(loop)) is None:
        found = _queues[loop] = asyncio.Lock()
    return found
