"""Rows as the body of an answer, batch by batch, each found after the place where the one before ended."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

Place = TypeVar("Place")


async def streamed(
    batch: Callable[[Place | None], Awaitable[tuple[Place | None, bytes]]], head: bytes = b""
) -> AsyncIterator[bytes]:
    """``head``, and the lines of each batch until one has none. ``batch`` takes the place after which its rows stand
    (None: from the start) and returns the place of its last one, with the lines. One batch is in memory at a time, and
    one that is ``agentcore_site.lib.async_db.briefly`` there holds no connection while the reader takes it."""
    if head:
        yield head
    place: Place | None = None
    while True:
        place, lines = await batch(place)
        if not lines:
            return
        yield lines
