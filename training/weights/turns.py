"""One engine and many who ask: calls run one after the other in a thread, and answers that wait are drawn together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from training.weights.engine import Engine, TokenDraw, TokensDrawn

MOST_AT_ONCE: Final = 64  # answers that are drawn in one batch
T = TypeVar("T")


class Turns:
    """Makes the calls of an engine from one event loop. ``busy`` counts the seconds in which it worked."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.busy = engine, 0.0
        self._thread = ThreadPoolExecutor(1, "engine")
        self._waiting: dict[str, list[tuple[TokenDraw, asyncio.Future[TokensDrawn]]]] = {}
        self._drawing: set[asyncio.Task[None]] = set()

    async def run(self, work: Callable[..., T], *args: Any) -> tuple[T, float]:
        """Result of a call, and its duration in seconds."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._timed, work, *args)

    async def draw(self, name: str, draw: TokenDraw) -> TokensDrawn:
        """One answer, together with whichever others wait for the same weights by the time the engine is free."""
        future: asyncio.Future[TokensDrawn] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(name, [])
        waiting.append((draw, future))
        if len(waiting) == 1:
            task = asyncio.get_running_loop().create_task(self._draw_waiting(name))
            self._drawing.add(task)
            task.add_done_callback(self._drawing.discard)
        return await future

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _draw_waiting(self, name: str) -> None:
        await self.run(lambda: None)  # those that come while the engine is busy with others are taken along
        while waiting := self._waiting.get(name):
            # What stays in the list meanwhile keeps later ones from starting a second task.
            taken = waiting[:MOST_AT_ONCE]
            batch = [one for one in taken if not one[1].cancelled()]
            try:
                drawn, _ = await self.run(self.engine.sample, name, [draw for draw, _ in batch])
                for (_, future), one in zip(batch, drawn, strict=True):
                    if not future.done():
                        future.set_result(one)
            except Exception as error:
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
            del waiting[: len(taken)]
        self._waiting.pop(name, None)

    def _timed(self, work: Callable[..., T], *args: Any) -> tuple[T, float]:
        began = time.perf_counter()
        try:
            found = work(*args)
        finally:
            seconds = time.perf_counter() - began
            self.busy += seconds
        return found, seconds
