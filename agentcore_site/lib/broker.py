"""Redis and the broker in the path of a request: asked briefly, and not at all for a while after no answer came.

Nothing that a request needs is kept only there, so a request goes on without it: nothing is limited, workers are woken
by the sweep, and pages poll.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from django.conf import settings
from kombu.exceptions import OperationalError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError

REMEMBERED_SECONDS: Final = 2.0


class BrokerUnavailable(RedisConnectionError):
    """It did not answer a moment ago, so it was not asked again."""


_away_until: dict[str, float] = {}  # by address


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
