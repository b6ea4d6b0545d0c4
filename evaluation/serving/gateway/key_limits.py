"""Rate limits of keys, what their calls under way may cost, and their spending that the database does not know yet."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from redis.exceptions import RedisError

from agentcore_site.lib.broker import broker_asked
from agentcore_site.lib.redis_address import async_redis_client, redis_client
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
# Keys: sorted sets of "call/micros": of calls under way by the second in which each is forgotten, and of calls that
# ended by that moment. Arguments: the call, its worst case, the room that the last read of the database left, the
# seconds until a call that no process ends is forgotten, and how many seconds ago what that read missed may have ended.
TAKE: Final = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1e6
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
local counted = 0
local function count(members)
  for _, member in ipairs(members) do counted = counted + tonumber(string.match(member, '[^/]*$')) end
end
count(redis.call('ZRANGE', KEYS[1], 0, -1))
count(redis.call('ZRANGEBYSCORE', KEYS[2], string.format('(%.6f', now - ARGV[5]), '+inf'))
if counted >= tonumber(ARGV[3]) then return 0 end
redis.call('ZADD', KEYS[1], string.format('%.6f', now + ARGV[4]), ARGV[1] .. '/' .. ARGV[2])
redis.call('EXPIRE', KEYS[1], ARGV[4] + 1)
return 1
"""
# Arguments: the call, its worst case, its cost, the seconds for which the cost is kept.
END: Final = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1e6
redis.call('ZREM', KEYS[1], ARGV[1] .. '/' .. ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - ARGV[4])
redis.call('ZADD', KEYS[2], string.format('%.6f', now), ARGV[1] .. '/' .. ARGV[3])
redis.call('EXPIRE', KEYS[2], ARGV[4] + 1)
"""
# Ends calls of which only "call/cost" is known. Arguments: the seconds for which costs are kept, and the calls.
FREE: Final = """
local time = redis.call('TIME')
local now = string.format('%.6f', time[1] + time[2] / 1e6)
local costs = {}
for at = 2, #ARGV do costs[string.match(ARGV[at], '^[^/]*')] = ARGV[at] end
for _, member in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  local ended = costs[string.match(member, '^[^/]*')]
  if ended then
    redis.call('ZREM', KEYS[1], member)
    redis.call('ZADD', KEYS[2], now, ended)
    redis.call('EXPIRE', KEYS[2], ARGV[1] + 1)
  end
end
"""
LONGEST_CALL: Final = 900  # seconds, where Redis is away when a killed process's calls are finished
KEPT: Final = 60  # seconds; reads of the database are younger
WRITING: Final = 1.0  # seconds from a call's end until its cost is in the database


class SharedLimit:
    """A limit that all processes share in Redis. Belongs to one event loop; close it there."""

    def __init__(self) -> None:
        self._client: Redis | None = None

    def _redis(self) -> Redis:
        if self._client is None:
            limits: dict[str, Any] = settings.REDIS_TIMEOUTS
            self._client = async_redis_client(settings.REDIS_URL, **limits)
        return self._client

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


class KeyHolds(SharedLimit):
    """Worst cases of calls under way, by key, shared by all processes in Redis, so that a key's month is passed by one
    call's worst case at the most. Without Redis each process counts its own calls."""

    def __init__(self) -> None:
        super().__init__()
        self._own: dict[uuid.UUID, dict[uuid.UUID, int]] = defaultdict(dict)

    async def take(self, key: uuid.UUID, call: uuid.UUID, micros: int, *, room_micros: int, read_at: float) -> bool:
        """Counts a call of at most ``micros``. False, and nothing is counted: calls that ended since the database was
        read at ``read_at`` (of ``time.monotonic``), and those under way, may cost all of ``room_micros``."""
        if sum(self._own[key].values()) >= room_micros:
            return False
        self._own[key][call] = micros  # counted here also where Redis answers late
        try:
            with broker_asked():
                missed = min(time.monotonic() - read_at + WRITING, KEPT)
                values = (str(call), str(micros), str(room_micros), str(LONGEST_CALL), f"{missed:.3f}")
                taken = bool(await self._redis().eval(TAKE, 2, *_names(key), *values))
        except (TimeoutError, RedisError, OSError) as error:
            log.info("this process alone counts what a key's calls may cost: %s", error)
            return True
        if not taken:
            self._ended(key, call)
        return taken

    async def end(self, key: uuid.UUID, call: uuid.UUID, cost_micros: int) -> None:
        """Counts the cost of a call that ended until a read of the database has it."""
        micros = self._ended(key, call)
        try:
            with broker_asked():
                values = (str(call), str(micros), str(cost_micros), str(KEPT))
                await self._redis().eval(END, 2, *_names(key), *values)
        except (TimeoutError, RedisError, OSError) as error:
            log.info("the end of a call is forgotten in %d s: %s", LONGEST_CALL, error)

    def _ended(self, key: uuid.UUID, call: uuid.UUID) -> int:
        own = self._own[key]
        micros = own.pop(call, 0)
        if not own:
            del self._own[key]
        return micros


def calls_ended(rows: Iterable[Mapping[str, Any]]) -> None:
    """Frees what calls of a process that is gone counted against their keys. ``rows``: their traces, as JSON."""
    costs: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        if row.get("key_id"):
            costs[row["key_id"]].append(f"{row['id']}/{row.get('cost_micros') or 0}")
    try:
        with redis_client(settings.REDIS_URL, **settings.REDIS_TIMEOUTS) as client, broker_asked():
            for key, calls in costs.items():
                client.eval(FREE, 2, *_names(uuid.UUID(key)), str(KEPT), *calls)
    except (RedisError, OSError) as error:
        log.info("the calls of a process that is gone are forgotten in %d s: %s", LONGEST_CALL, error)


def _names(key: uuid.UUID) -> tuple[str, str]:
    """Of what is under way and of what ended; in a cluster both are on one node."""
    return f"agentcore:{{{key}}}:held", f"agentcore:{{{key}}}:ended"


class KeyRates(SharedLimit):
    """Calls per minute by key, shared by all processes in Redis. Without Redis each process limits its own calls.
    A whole minute's calls may come at once, the next ones evenly.
    """

    def __init__(self) -> None:
        super().__init__()
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
        if float(wait) <= 0:
            self._own_turn(key, interval, ahead)  # where Redis answers the next one late, this one counts all the same
        return float(wait)

    def _own_turn(self, key: uuid.UUID, interval: float, ahead: float) -> float:
        now = time.monotonic()
        due = max(self._own.get(key, now), now) + interval
        wait = due - now - ahead
        if wait <= 0:
            self._own[key] = due
        return max(wait, 0.0)


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
