"""Interrupts work that waits: for a model that is away, a call that hangs, an agent that does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

EVERY_SECONDS: Final = 0.25  # as often as a lease reads requests
GRACE_SECONDS: Final = 1.0  # for calls under way, whose answers are paid for


@asynccontextmanager
async def interruptible(check: Callable[[], None]) -> AsyncIterator[None]:
    """Calls ``check`` while the body runs. If ``check`` raises, the body has a second to end by itself; then the body
    is cancelled, and what ``check`` raised is raised in its place. Calls that are cut off are paid for.

    Raises:
        What ``check`` raises, as it is.
    """
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    cause: Exception | None = None
    timer: asyncio.TimerHandle
    cancelled = False

    def tick() -> None:
        nonlocal timer, cause
        try:
            check()
        except Exception as error:  # it is raised where the body is awaited
            cause = error
            timer = loop.call_later(GRACE_SECONDS, cancel)
        else:
            timer = loop.call_later(EVERY_SECONDS, tick)

    def cancel() -> None:
        nonlocal cancelled
        cancelled = True
        task.cancel()

    timer = loop.call_later(EVERY_SECONDS, tick)
    try:
        yield
    except asyncio.CancelledError:
        # Another cancellation of this task, besides ours, goes on.
        if cause is not None and cancelled and task.uncancel() == 0:
            raise cause from cause.__cause__
        raise
    finally:
        timer.cancel()
