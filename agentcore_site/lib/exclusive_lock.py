"""A lock for work of one worker at a time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from redis.exceptions import LockError, RedisError
from redis.lock import Lock

from agentcore_site.lib.broker import site_redis

log = logging.getLogger(__name__)

SECONDS: Final = 10.0  # a worker that was killed keeps the others waiting for no longer
RENEWED: Final = 3.0


@contextmanager
def exclusive_lock(name: str) -> Iterator[bool]:
    """True if the lock was taken; no other worker gets it until the block ends, however long that takes. Raises
    RedisError where the server can't be reached."""
    lock = Lock(site_redis(), f"lock {name}", timeout=SECONDS, blocking=False, thread_local=False)
    if not lock.acquire():
        yield False
        return
    ended = threading.Event()
    renewing = threading.Thread(target=_renew, args=(lock, ended, name), daemon=True)
    renewing.start()
    try:
        yield True
    finally:
        ended.set()
        renewing.join()
        try:
            lock.release()
        except (LockError, RedisError) as error:
            log.warning("the lock %s was lost before its work ended: %s", name, error)


def _renew(lock: Lock, ended: threading.Event, name: str) -> None:
    while not ended.wait(RENEWED):
        try:
            lock.reacquire()
        except LockError:
            return  # its release reports the loss
        except RedisError as error:
            log.warning("the lock %s can't be renewed: %s", name, error)
