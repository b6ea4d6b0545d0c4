"""Heartbeats: a process sets the time of a file that ``manage.py up`` checks; a part of the feedback loop sets a key of
the cache."""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from typing import Final

from django.core.cache import cache
from django.utils import timezone
from redis import RedisError

log = logging.getLogger(__name__)

FILE: Final = "HEARTBEAT_FILE"  # set by the process that started this one; without it there are no heartbeats
SECONDS: Final = 2.0
ALIVE_SECONDS: Final = 15  # then a silent part is assumed dead
PARTS: Final = ("relay", "consumers")
_kept: set[asyncio.Task[None]] = set()  # strong references: an event loop drops its tasks


def heartbeat() -> None:
    """Writes a heartbeat; nothing if the file is gone: only heartbeats that stop after the first one count."""
    if path := os.environ.get(FILE):
        with suppress(OSError):
            os.utime(path)


def heartbeat_in_loop() -> None:
    """Writes heartbeats from the running event loop for as long as the loop runs."""
    _kept.add(asyncio.get_running_loop().create_task(_heartbeat_loop()))


async def _heartbeat_loop() -> None:
    while True:
        heartbeat()
        await asyncio.sleep(SECONDS)


def heartbeat_key(part: str) -> str:
    return f"events.{part}"


def heartbeats_send(parts: tuple[str, ...]) -> None:
    try:
        cache.set_many({heartbeat_key(part): timezone.now().isoformat() for part in parts}, ALIVE_SECONDS)
    except RedisError as error:
        log.warning("heartbeats can't be sent: %s", error)
