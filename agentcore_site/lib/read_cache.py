"""An event loop's cache of database reads: read in a thread, one reader per key."""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Generic, TypeVar

from django.db import connection

from agentcore_site.lib.database import TROUBLE

MOST: Final = 10_000
READERS: Final = 2  # threads that read the database
AHEAD: Final = 0.7  # after this part of its time a requested value is read again

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ReadCache(Generic[K, V]):
    """A bounded cache of reads, with one reader per key.

    None, the result of a read without a database, is not stored. ``lasting``: earlier values stay available then
    (``fresh`` with ``math.inf``).
    """

    def __init__(self, most: int = MOST, *, lasting: bool = False) -> None:
        self._most, self._lasting = most, lasting
        self._kept: OrderedDict[K, tuple[float, V]] = OrderedDict()
        self._reading: dict[K, asyncio.Future[V | None]] = {}
        self._generation = 0

    def fresh(self, key: K, seconds: float) -> V | None:
        """The value that was read less than ``seconds`` ago."""
        found = self._kept.get(key)
        return found[1] if found is not None and time.monotonic() - found[0] < seconds else None

    async def get(self, key: K, seconds: float, read_value: Callable[[], V | None]) -> V | None:
        """The value that was read less than ``seconds`` ago, else a new read. A refresh starts in the background before
        that time is over, so that callers of a busy key never wait."""
        kept = self._kept.get(key)
        age = math.inf if kept is None else time.monotonic() - kept[0]
        if kept is None or age >= seconds:
            return await self.read(key, read_value)
        if age >= seconds * AHEAD and key not in self._reading:
            self._begun(key, read_value).add_done_callback(_retrieved)
        return kept[1]

    async def read(self, key: K, read_value: Callable[[], V | None]) -> V | None:
        """Reads by ``read_value``, in a thread. A concurrent caller waits for the same result."""
        return await asyncio.shield(self._begun(key, read_value))

    def _begun(self, key: K, read_value: Callable[[], V | None]) -> asyncio.Future[V | None]:
        reading = self._reading.get(key)
        if reading is None:
            reading = self._reading[key] = asyncio.ensure_future(self._read_in_thread(key, read_value))
        return reading

    async def _read_in_thread(self, key: K, read_value: Callable[[], V | None]) -> V | None:
        began, generation = time.monotonic(), self._generation
        try:
            found = await asyncio.get_running_loop().run_in_executor(_readers, _with_connection, read_value)
        finally:
            if self._reading.get(key) is asyncio.current_task():
                del self._reading[key]
        # A change during the read may be missing in the result.
        if generation != self._generation:
            return found
        if found is not None or not self._lasting:
            self._kept.pop(key, None)
        if found is not None:
            self._kept[key] = (began, found)
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return found

    def forget(self, which: Callable[[V], bool] = lambda _: True) -> None:
        """Drops outdated values, also those that are being read just now: the next caller reads again."""
        self._generation += 1
        self._reading.clear()
        for key in [key for key, (_, value) in self._kept.items() if which(value)]:
            del self._kept[key]


_readers = ThreadPoolExecutor(READERS, thread_name_prefix="reads")


def _retrieved(reading: asyncio.Future[Any]) -> None:
    """Ignores the error: it is raised to the next caller, who reads again."""
    if not reading.cancelled():
        reading.exception()


def _with_connection(read_value: Callable[[], Any]) -> Any:
    """Returns None also if the database is unavailable."""
    try:
        return read_value()
    except TROUBLE:
        return None
    finally:
        connection.close()
