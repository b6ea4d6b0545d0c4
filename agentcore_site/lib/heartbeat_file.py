"""A process's heartbeat: the time of a file, which ``manage.py up`` checks."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import Final

FILE: Final = "TICK_FILE"  # set by the process that started this one; without it there are no heartbeats
SECONDS: Final = 2.0
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
