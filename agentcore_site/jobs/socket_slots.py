"""Counts the open sockets of a share link or a person, over all web processes.

A sorted set in Redis for each subject: a member for each socket, its score the second at which it expires. A socket
renews its own member at every poll, so that members of a killed process expire. Without Redis each process counts its
own sockets.
"""

from __future__ import annotations

import time
from threading import Lock
from typing import Final

from redis.exceptions import RedisError

from agentcore_site.lib.broker import broker_asked, site_redis

LEASE_SECONDS: Final = 15

_here: Final[dict[str, set[str]]] = {}  # this process's open sockets by subject
_guard: Final = Lock()


def slot_take(subject: str, socket: str, limit: int) -> bool:
    """True if this socket may stay open: at most ``limit`` are; without Redis, of this process."""
    taken = _counted(subject, socket, limit)
    if taken:
        with _guard:
            _here.setdefault(subject, set()).add(socket)
    return taken


def _counted(subject: str, socket: str, limit: int) -> bool:
    key, now = _key(subject), time.time()
    try:
        with broker_asked():
            pipe = site_redis().pipeline()
            pipe.zremrangebyscore(key, 0, now)
            pipe.zadd(key, {socket: now + LEASE_SECONDS})
            pipe.zcard(key)
            pipe.expire(key, LEASE_SECONDS)
            count = int(pipe.execute()[2])
    except RedisError:
        return len(_here.get(subject, ())) < limit
    if count > limit:
        slot_free(subject, socket)
    return count <= limit


def slot_renew(subject: str, socket: str) -> None:
    """Keeps a socket counted for another lease."""
    try:
        with broker_asked():
            pipe = site_redis().pipeline()
            pipe.zadd(_key(subject), {socket: time.time() + LEASE_SECONDS})
            pipe.expire(_key(subject), LEASE_SECONDS)
            pipe.execute()
    except RedisError:
        return


def slot_free(subject: str, socket: str) -> None:
    """Removes a closed socket."""
    with _guard:
        _here.get(subject, set()).discard(socket)
        if not _here.get(subject):
            _here.pop(subject, None)
    try:
        with broker_asked():
            site_redis().zrem(_key(subject), socket)
    except RedisError:
        return  # the member expires after its lease


def _key(subject: str) -> str:
    return f"agentcore:sockets:{subject}"
