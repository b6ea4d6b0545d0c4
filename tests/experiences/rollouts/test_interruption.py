"""Work that waits is interrupted: for as long as it waits, ``check`` is called."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from experiences.rollouts import interruption
from experiences.rollouts.interruption import interruptible


class Stop(Exception): ...


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interruption, "EVERY_SECONDS", 0.01)
    monkeypatch.setattr(interruption, "GRACE_SECONDS", 0.05)


def stopping_after(calls: int) -> Callable[[], None]:
    """A check that raises from its ``calls`` + 1st call on."""
    made = 0

    def check() -> None:
        nonlocal made
        made += 1
        if made > calls:
            raise Stop

    return check


def test_a_body_that_hangs_is_cancelled_and_the_cause_is_raised() -> None:
    cleaned: list[str] = []

    async def work() -> None:
        async with interruptible(stopping_after(2)):
            try:
                await asyncio.sleep(60)
            finally:
                cleaned.append("up")

    with pytest.raises(Stop):
        asyncio.run(work())
    assert cleaned == ["up"]


def test_a_call_under_way_has_time_to_be_answered() -> None:
    async def work() -> str:
        async with interruptible(stopping_after(0)):
            await asyncio.sleep(0.03)  # longer than until the check, shorter than until its grace is over
            return "answered"

    assert asyncio.run(work()) == "answered"


def test_an_error_of_the_body_itself_is_not_replaced() -> None:
    async def work() -> None:
        async with interruptible(stopping_after(0)):
            await asyncio.sleep(0.03)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(work())


def test_a_cancellation_from_outside_stays_one() -> None:
    async def work() -> None:
        async with interruptible(lambda: None):
            await asyncio.sleep(60)

    async def cancelled() -> None:
        task = asyncio.create_task(work())
        await asyncio.sleep(0.03)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())


def test_nothing_is_left_once_the_body_has_ended() -> None:
    async def work() -> None:
        async with interruptible(stopping_after(0)):
            pass
        await asyncio.sleep(0.1)  # a timer that is left would cancel this

    asyncio.run(work())
