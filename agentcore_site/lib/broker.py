"""Redis in the path of a request: asked briefly, and not at all for a while after it did not answer.

Nothing that a request needs is kept only there, so a request goes on without it: nothing is limited, workers are woken
by the sweep, and pages poll.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kombu.exceptions import OperationalError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError

REMEMBERED_SECONDS: Final = 2.0


class BrokerAway(RedisConnectionError):
    """The broker did not answer a moment ago, so it was not asked again."""


_away_until = 0.0


@contextmanager
def broker_asked() -> Iterator[None]:
    """For the block that asks Redis.

    Raises:
        BrokerAway: it was away a moment ago. What the block raises is passed on, and remembered for two seconds.
    """
    global _away_until
    if time.monotonic() < _away_until:
        raise BrokerAway("Redis did not answer a moment ago.")
    try:
        yield
    except (RedisConnectionError, TimeoutError, OperationalError, OSError):
        _away_until = time.monotonic() + REMEMBERED_SECONDS
        raise
