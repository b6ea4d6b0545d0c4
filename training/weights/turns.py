"""One engine and many who ask: calls run one after the other in a thread, and answers that wait are drawn together."""

from __future__ import annotations

import asyncio
import ctypes
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from training.weights.engine import Engine, TokenDraw, TokensDrawn

T = TypeVar("T")
Waiting = tuple[TokenDraw, "asyncio.Future[TokensDrawn]"]
# The C library of Linux keeps freed memory of one call for the next, as long as anything lies behind it.
_TRIM: Final = getattr(ctypes.CDLL(None), "malloc_trim", None)


class Turns:
    """Makes the calls of an engine from one event loop. ``busy`` counts the seconds in which it worked,
    ``drawn`` the tokens of all answers, and ``drawing`` the seconds that these took."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.busy = engine, 0.0
        self.drawn, self.drawing = 0, 0.0
        self._thread = ThreadPoolExecutor(1, "engine")
        self._waiting: dict[str, deque[Waiting]] = {}
        self._drawing: set[asyncio.Task[None]] = set()
        # Calls that were made and that have begun, each written by one thread. A batch takes in no more answers while
        # a call waits.
        self._made = self._begun = 0

    async def run(self, work: Callable[..., T], *args: Any) -> tuple[T, float]:
        """Result of a call, and its duration in seconds."""
        self._made += 1
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._timed, work, *args)

    async def draw(self, name: str, draw: TokenDraw) -> TokensDrawn:
        """One answer, in the batch of those for the same weights: it joins the one that is drawn now.

        Raises:
            BadInput: it can't be drawn here.
        """
        self.engine.check(draw)
        future: asyncio.Future[TokensDrawn] = asyncio.get_running_loop().create_future()
        if name in self._waiting:
            self._waiting[name].append((draw, future))
        else:
            self._waiting[name] = deque([(draw, future)])
            task = asyncio.get_running_loop().create_task(self._draw_waiting(name))
            self._drawing.add(task)
            task.add_done_callback(self._drawing.discard)
        return await future

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _draw_waiting(self, name: str) -> None:
        await self.run(lambda: None)  # those that come while the engine is busy with others are taken along
        waiting = self._waiting[name]
        while waiting:
            await self._draw_batch(name, waiting)
        del self._waiting[name]

    async def _draw_batch(self, name: str, waiting: deque[Waiting]) -> None:
        loop = asyncio.get_running_loop()
        batch: list[asyncio.Future[TokensDrawn]] = []

        def taken(*, first: bool = False) -> Iterator[TokenDraw]:
            """In the engine's thread; a deque needs no lock for it."""
            while waiting and (first or self._made == self._begun):
                draw, future = waiting.popleft()
                if not future.cancelled():
                    batch.append(future)
                    yield draw

        def done(number: int, drawn: TokensDrawn) -> None:
            loop.call_soon_threadsafe(_resolve, batch[number], drawn)

        def work() -> int:
            return sum(len(one.ids) for one in self.engine.sample(name, tuple(taken(first=True)), taken, done))

        try:
            tokens, seconds = await self.run(work)
            self.drawn, self.drawing = self.drawn + tokens, self.drawing + seconds
        except Exception as error:
            for future in batch:
                if not future.done():
                    future.set_exception(error)

    def _timed(self, work: Callable[..., T], *args: Any) -> tuple[T, float]:
        self._begun += 1
        began = time.perf_counter()
        try:
            found = work(*args)
        finally:
            seconds = time.perf_counter() - began
            self.busy += seconds
            if _TRIM is not None:
                _TRIM(0)
        return found, seconds


def _resolve(future: asyncio.Future[TokensDrawn], drawn: TokensDrawn) -> None:
    if not future.done():
        future.set_result(drawn)
