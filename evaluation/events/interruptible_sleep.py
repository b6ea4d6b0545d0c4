"""A sleep that ends at once when the process stops."""

from __future__ import annotations

import asyncio


async def pause(stopping: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(stopping.wait(), seconds)
    except TimeoutError:
        return
