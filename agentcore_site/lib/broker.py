"""Redis and the broker in the path of a request: short time-outs, and no call for a while after a failure.

They hold nothing that a request needs, so a request continues without them: nothing is limited, the sweep wakes
workers, and pages poll.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

from django.conf import settings
from kombu.exceptions import OperationalError
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError

from agentcore_site.lib.redis_address import redis_client

REMEMBERED_SECONDS: Final = 2.0


class BrokerUnavailable(RedisConnectionError):
    """It did not answer a moment ago, so it was not called again."""


_away_until: dict[str, float] = {}  # by address


@cache
def site_redis() -> Redis:
    """This process's client of the site's Redis, whose connections are kept; redis-py opens new ones after a fork."""
    return redis_client(settings.REDIS_URL, **settings.REDIS_TIMEOUTS)


@contextmanager
def broker_asked(url: str = "") -> Iterator[None]:
    """For the block that asks what is at ``url``; Redis by default.

    Raises:
        BrokerUnavailable: it was away a moment ago. What the block raises is passed on, and remembered for two seconds.
    """
    url = url or settings.REDIS_URL
    if time.monotonic() < _away_until.get(url, 0.0):
        raise BrokerUnavailable("It did not answer a moment ago.")
    try:
        yield
    except (RedisConnectionError, TimeoutError, OperationalError, OSError):
        _away_until[url] = time.monotonic() + REMEMBERED_SECONDS
        raise
