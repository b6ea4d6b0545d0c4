"""Rows as the body of an answer, batch by batch, each starting after the end of the one before."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

Place = TypeVar("Place")


async def streamed(
    batch: Callable[[Place | None], Awaitable[tuple[Place | None, bytes]]], head: bytes = b""
) -> AsyncIterator[bytes]:
    """``head``, and the lines of each batch until one has none. ``batch`` takes the position after which its rows start
    (None: from the start) and returns the position of its last row, with the lines. One batch is in memory at a time,
    and a batch read by ``agentcore_site.lib.async_db.briefly`` holds no connection while the reader takes it."""
    if head:
        yield head
    place: Place | None = None
    while True:
        place, lines = await batch(place)
        if not lines:
            return
        yield lines
