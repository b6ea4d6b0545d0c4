"""Waiting that ends at once when the process is asked to stop."""

from __future__ import annotations

import asyncio


async def pause(stopping: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(stopping.wait(), seconds)
    except TimeoutError:
        return
