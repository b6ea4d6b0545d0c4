"""A reward that asks a service has a limited time: a service may hang.

One that says ``timeout_seconds`` works in a thread beside the event loop, one call at a time, as it would in the loop;
the others, which only compute, are called at once. One that runs out of time, or raises ``TimeoutError``, halts the
run: what came before is kept, and nothing is learned from rollouts without a reward. A thread can't be stopped; it is
left to itself, and what it would still write belongs to a rollout that was dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from weakref import WeakKeyDictionary

from experiences.rollouts.rewards.base import GroupReward, Reward, RewardTimedOut, pay, settle
from experiences.rollouts.runtimes.base import Halted
from experiences.rollouts.types import Trajectory

REASON: Final = "reward_timeout"


@dataclass
class _Turn:
    """Of one event loop: whose turn it is, and why no further one is given."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    halted: str = ""


_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, _Turn] = WeakKeyDictionary()


async def pay_in_time(reward: Reward, trajectory: Trajectory) -> None:
    """As ``pay`` does.

    Raises:
        Halted: the reward took more than its ``timeout_seconds``, or raised ``TimeoutError``.
    """
    await _in_time(partial(pay, reward, trajectory), reward)


async def settle_in_time(reward: Reward, trajectories: Sequence[Trajectory]) -> None:
    """As ``settle`` does. Raises Halted as ``pay_in_time`` does."""
    if isinstance(reward, GroupReward):
        await _in_time(partial(settle, reward, trajectories), reward)


async def _in_time(call: Callable[[], None], reward: Reward) -> None:
    seconds: float | None = getattr(reward, "timeout_seconds", None)
    try:
        if seconds is None:
            return call()
        await _beside(call, seconds)
    except RewardTimedOut as error:
        name = getattr(reward, "__name__", type(reward).__name__)
        raise Halted(REASON, f"The reward {name} ran out of time: {error}. Mend it, then resume the job.") from error


async def _beside(call: Callable[[], None], seconds: float) -> None:
    """Raises RewardTimedOut."""
    loop = asyncio.get_running_loop()
    turn = _turns.setdefault(loop, _Turn())
    async with turn.lock:
        if turn.halted:
            raise RewardTimedOut(turn.halted)
        try:
            await asyncio.wait_for(_in_thread(call, loop), seconds)
        except TimeoutError:
            turn.halted = f"it took more than {seconds:g} s"
            raise RewardTimedOut(turn.halted) from None


def _in_thread(call: Callable[[], None], loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
    done: asyncio.Future[None] = loop.create_future()

    def resolve(error: Exception | None) -> None:
        if not done.done():
            done.set_result(None) if error is None else done.set_exception(error)

    def work() -> None:
        error = None
        try:
            call()
        except Exception as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(resolve, error)

    threading.Thread(target=work, name="reward", daemon=True).start()
    return done
