"""A process's sign that its main loop turns: the time of a file, at which ``manage.py up`` looks."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import Final

FILE: Final = "TICK_FILE"  # set by what started the process; without it nothing is said
SECONDS: Final = 2.0
_kept: set[asyncio.Task[None]] = set()  # a loop forgets its tasks


def heartbeat() -> None:
    """Says it. Where the file is gone nothing is said: a sign that stays away only after there was one counts."""
    if path := os.environ.get(FILE):
        with suppress(OSError):
            os.utime(path)


def heartbeat_in_loop() -> None:
    """Says it from the running event loop for as long as that turns."""
    _kept.add(asyncio.get_running_loop().create_task(_heartbeat_loop()))


async def _heartbeat_loop() -> None:
    while True:
        heartbeat()
        await asyncio.sleep(SECONDS)
