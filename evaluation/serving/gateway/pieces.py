"""The bytes of a stream on their way to the caller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

WORKING: Final = b": working\n\n"  # a comment of the stream, which clients leave out and proxies count as life


class Pieces:
    """Passes on what was put, in order. All that is there goes as one piece: sending costs more than joining."""

    def __init__(self) -> None:
        self._ready: list[bytes] = []
        self._changed = asyncio.Event()
        self._ended = False

    def put(self, piece: bytes) -> None:
        self._ready.append(piece)
        self._changed.set()

    def end(self) -> None:
        self._ended = True
        self._changed.set()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while self._ready or not self._ended:
            await self._changed.wait()
            self._changed.clear()
            if self._ready:
                ready, self._ready = self._ready, []
                yield b"".join(ready)
