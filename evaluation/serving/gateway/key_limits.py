"""Rate limits of keys, and their spending that the database does not know yet."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import defaultdict, deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from redis.exceptions import RedisError

from agentcore_site.lib.broker import broker_asked
from agentcore_site.lib.redis_address import async_redis_client
from evaluation.serving.models import ArmName

if TYPE_CHECKING:
    from redis.asyncio import Redis

log = logging.getLogger(__name__)

MINUTE: Final = 60.0
# GCRA (ITU-T I.371) on the server's clock. Key: the time at which evenly spaced calls would be due. Arguments: the
# seconds between two calls, and how early a call may come. A refused call does not change the time.
TURN: Final = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1e6
local due = math.max(tonumber(redis.call('GET', KEYS[1]) or '0'), now) + tonumber(ARGV[1])
local wait = due - now - tonumber(ARGV[2])
if wait > 0 then return string.format('%.6f', wait) end
redis.call('SET', KEYS[1], string.format('%.6f', due), 'EX', math.ceil(due - now) + 1)
return '0'
"""


class KeyRates:
    """Calls per minute by key, shared by all processes in Redis. Without Redis each process limits its own calls.
    A whole minute's calls may come at once, the next ones evenly. Belongs to one event loop; close it there.
    """

    def __init__(self) -> None:
        self._client: Redis | None = None
        self._own: dict[uuid.UUID, float] = {}

    async def turn(self, key: uuid.UUID, per_minute: int) -> float:
        """Counts a call and returns 0, or returns the seconds until the next call is allowed."""
        interval = MINUTE / per_minute
        ahead = MINUTE + interval / 100  # rounding of intervals must not cost a whole call
        try:
            with broker_asked():
                wait = await self._redis().eval(TURN, 1, f"agentcore:key-rate:{key}", str(interval), str(ahead))
        except (TimeoutError, RedisError, OSError) as error:
            log.info("this process alone limits the rate of a key: %s", error)
            return self._own_turn(key, interval, ahead)
        return float(wait)

    def _own_turn(self, key: uuid.UUID, interval: float, ahead: float) -> float:
        now = time.monotonic()
        due = max(self._own.get(key, now), now) + interval
        wait = due - now - ahead
        if wait <= 0:
            self._own[key] = due
        return max(wait, 0.0)

    def _redis(self) -> Redis:
        if self._client is None:
            limits: dict[str, Any] = settings.REDIS_TIMEOUTS
            self._client = async_redis_client(settings.REDIS_URL, **limits)
        return self._client

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


class RecentSpending:
    """Spending of keys in this process that the last read of the database may not include.

    Called by the event loop, and by the thread that writes traces.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: dict[str, int] = defaultdict(int)
        self._written: dict[str, deque[tuple[float, int]]] = defaultdict(deque)

    def add(self, row: Mapping[str, Any]) -> None:
        """Adds a call that ended; its trace, as JSON, is not written yet."""
        if row["arm"] != ArmName.SHADOW:  # a shadow has a budget of its own
            with self._guard:
                self._waiting[row["key_id"]] += row["cost_micros"]

    def written(self, row: Mapping[str, Any]) -> None:
        """Marks the trace of a call as written now."""
        key, cost_micros = row["key_id"], row["cost_micros"]
        with self._guard:
            if key in self._waiting and row["arm"] != ArmName.SHADOW:
                self._waiting[key] -= cost_micros
                self._written[key].append((time.monotonic(), cost_micros))

    def since(self, key: uuid.UUID, moment: float) -> int:
        """Spending that a read of the database, begun at ``moment`` (of ``time.monotonic``), may have missed."""
        with self._guard:
            written = self._written[str(key)]
            while written and written[0][0] < moment:
                written.popleft()
            return self._waiting[str(key)] + sum(cost_micros for _, cost_micros in written)
