"""Threads for tools that wait or work for long: daemons, so that one that hangs holds up neither another nor the end.

The loop's own executor will not do: it has few threads, a hung call keeps one for ever, and closing the loop waits for
it.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")
MAX_HANGING: Final = 8  # calls of one tool that were given up and still run


class TooManyHang(Exception):
    """The tool is not called: too many earlier calls of it never came back."""


class ToolThreads:
    """A thread for each call. How many run at once is bounded by the rollouts that wait for them, and those
    without a waiting caller by ``max_hanging`` for each tool."""

    def __init__(self, max_hanging: int = MAX_HANGING) -> None:
        self._max_hanging = max_hanging
        self._hanging: Counter[str] = Counter()
        self._lock = threading.Lock()

    async def run(self, tool: str, function: Callable[..., T], *arguments: Any) -> T:
        """Runs ``function`` and returns its result. If the caller gives up, the call continues and is counted.

        Raises:
            TooManyHang: nothing was called.
        """
        if (hanging := self._hanging[tool]) >= self._max_hanging:
            raise TooManyHang(f"not called: {hanging} earlier calls of it are still hanging")
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()
        ended = given_up = False

        def settle(value: T | None, error: BaseException | None) -> None:
            if answered.done():
                return
            if error is None:
                answered.set_result(value)  # type: ignore[arg-type]
            else:
                answered.set_exception(error)

        def work() -> None:
            nonlocal ended
            value, error = None, None
            try:
                value = context.run(function, *arguments)
            except Exception as raised:
                error = raised if not isinstance(raised, StopIteration) else RuntimeError("StopIteration")
            except BaseException as raised:  # a tool's sys.exit() ends its own thread, not the worker
                error = RuntimeError(type(raised).__name__)
            with self._lock:
                ended = True
                if given_up:
                    self._hanging[tool] -= 1
                    return
            try:
                loop.call_soon_threadsafe(settle, value, error)
            except RuntimeError:
                return  # the loop was closed: no caller waits any more

        threading.Thread(target=work, name=f"tool {tool}", daemon=True).start()
        try:
            return await answered
        except asyncio.CancelledError:
            with self._lock:
                if not ended:
                    given_up = True
                    self._hanging[tool] += 1
            raise


threads: Final = ToolThreads()
