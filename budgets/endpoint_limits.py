"""The circuit breaker and the pace that all calls to one endpoint of an organisation share.

A slice of a job has a client of its own. Without this each would have to find out for itself that an endpoint is down,
and a limit of requests a minute would be one per worker. The breaker is one per process; the pace is in Redis.
"""

from __future__ import annotations

import hashlib
import logging
import uuid
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from django.conf import settings
from redis.exceptions import RedisError

from agentcore_site.lib.redis_address import async_redis_client

if TYPE_CHECKING:
    from redis.asyncio import Redis

from budgets.llm.breaker import CircuitBreaker
from budgets.llm.concurrency_limits import OwnPace

log = logging.getLogger(__name__)

SECONDS: Final = 1.0  # for an answer of Redis; a pace of one's own takes over then
# One turn on the server's clock. Keys: when the next one is due. Arguments: interval and burst, in seconds.
TURN: Final = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1e6
local interval, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local due = math.max(tonumber(redis.call('GET', KEYS[1]) or '0'), now)
redis.call('SET', KEYS[1], string.format('%.6f', due + interval), 'EX', math.ceil(due + interval - now) + 60)
return string.format('%.6f', due + interval - burst - now)
"""


@lru_cache(maxsize=1_000)
def breaker_of(organization_id: uuid.UUID, url: str) -> CircuitBreaker:
    """The circuit breaker of an endpoint, in this process. Each organisation has its own: limits there may differ."""
    return CircuitBreaker()


class SharedPace:
    """``Pace`` of an endpoint of an organisation, kept to by all workers. Belongs to one event loop; close it there.

    With Redis away it is kept to by each client for itself, which is said in the log.
    """

    def __init__(self, organization_id: uuid.UUID, url: str) -> None:
        place = hashlib.blake2b(url.encode(), digest_size=12).hexdigest()
        self._key = f"agentcore:pace:{organization_id}:{place}"
        self._own = OwnPace()
        self._client: Redis | None = None

    async def turn(self, purpose: str, per_minute: int) -> float:
        interval = 60.0 / per_minute
        if self._client is None:
            self._client = async_redis_client(
                settings.REDIS_URL, socket_timeout=SECONDS, socket_connect_timeout=SECONDS
            )
        try:
            wait = await self._client.eval(TURN, 1, f"{self._key}:{purpose}", str(interval), str(max(1.0, interval)))
        except (TimeoutError, RedisError, OSError) as error:
            log.warning("the pace is kept to by this client alone: %s", error)
            return await self._own.turn(purpose, per_minute)
        return float(wait)

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()
