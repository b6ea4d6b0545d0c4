"""Limits of the calls and streams that are under way at once, by key, organisation and address.

Each process counts its own, writes them to Redis twice a second and reads those of all others, so that no call waits
for Redis. What others began since then is not counted yet. Without Redis each process limits its own.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

import orjson
from django.conf import settings
from redis.exceptions import RedisError

from agentcore_site.lib.broker import broker_asked
from evaluation.serving.gateway.key_limits import SharedLimit

log = logging.getLogger(__name__)

# A hash of "second counts" by process. Arguments: the process, its counts as JSON, the seconds for which counts hold.
# Returns the counts of all other processes, without those that wrote none for so long. The clock is the server's.
EXCHANGE: Final = """
local now = tonumber(redis.call('TIME')[1])
redis.call('HSET', KEYS[1], ARGV[1], now .. ' ' .. ARGV[2])
redis.call('EXPIRE', KEYS[1], ARGV[3])
local all, others = redis.call('HGETALL', KEYS[1]), {}
for at = 1, #all, 2 do
  local second, counts = string.match(all[at + 1], '^(%d+) (.*)$')
  if tonumber(second) + tonumber(ARGV[3]) < now then redis.call('HDEL', KEYS[1], all[at])
  elseif all[at] ~= ARGV[1] then others[#others + 1] = counts end
end
return others
"""
NAME: Final = "agentcore:gateway-calls"
EVERY: Final = 0.5  # seconds between two exchanges
HELD: Final = 5  # seconds for which the counts of a process hold that writes none: it was killed


class AtOnceFull(Exception):
    """As many as ``limit`` of a ``kind`` are under way for ``whose``."""

    def __init__(self, kind: str, whose: str, limit: int) -> None:
        super().__init__(f"This {whose} may have {limit:,} {kind} at once. Wait until one of them has ended.")


class CallSource(NamedTuple):
    """The source of a call, by which calls are counted; empty: not known."""

    key: str
    organization: str
    address: str


class CallsAtOnce(SharedLimit):
    """The counts of one process. Belongs to one event loop."""

    def __init__(self) -> None:
        super().__init__()
        self._process = uuid.uuid4().hex
        self._own: Counter[str] = Counter()
        self._others: Mapping[str, int] = {}

    @contextmanager
    def counted(self, kind: str, caller: CallSource) -> Iterator[None]:
        """Counts a call (``kind``: calls or streams) for the block. Raises AtOnceFull: a limit is reached."""
        subjects = []
        for whose, subject in caller._asdict().items():
            name, limit = f"{kind}:{whose}:{subject}", getattr(settings, f"GATEWAY_{kind}_PER_{whose}".upper())
            if subject and self._own[name] + self._others.get(name, 0) >= limit:
                raise AtOnceFull(kind, whose, limit)
            if subject:
                subjects.append(name)
        self._own.update(subjects)
        try:
            yield
        finally:
            for name in subjects:
                self._own[name] -= 1
                if not self._own[name]:
                    del self._own[name]

    async def exchange_always(self) -> None:
        """Exchanges the counts with all other processes, periodically."""
        while True:
            await self.exchange()
            await asyncio.sleep(EVERY)

    async def exchange(self) -> None:
        try:
            with broker_asked():
                found = await self._redis().eval(EXCHANGE, 1, NAME, self._process, orjson.dumps(self._own), str(HELD))
        except (TimeoutError, RedisError, OSError) as error:
            if self._others:
                log.warning("this process alone limits the calls at once: %s", error)
            self._others = {}
            return
        others: Counter[str] = Counter()
        for counts in found:
            others.update(orjson.loads(counts))
        self._others = others
