"""Rewards with a time limit: they work beside the event loop, one at a time, and halt the run when it is exceeded."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from experiences.rollouts.rewards import Payment
from experiences.rollouts.rewards.bounded import pay_in_time, settle_in_time
from experiences.rollouts.runtimes.base import Halted
from experiences.rollouts.types import RolloutKey, Step, Trajectory


def trajectory(n: int = 0) -> Trajectory:
    return Trajectory(RolloutKey(0, 0, n), "q", [Step({}, {}, {})], outcome=0.5)


class Asking:
    """Asks a service, which ``does`` something first."""

    def __init__(self, does: Callable[[], object] = int, seconds: float | None = 5.0) -> None:
        self.does, self.threads, self.daemons = does, set[str](), set[bool]()
        if seconds is not None:
            self.timeout_seconds = seconds

    def __call__(self, one: Trajectory) -> Payment:
        self.threads.add(threading.current_thread().name)
        self.daemons.add(threading.current_thread().daemon)
        self.does()
        return Payment.at_the_end(one, {"a": one.outcome})

    def settle(self, group: Sequence[Trajectory]) -> list[Payment | None]:
        return [self(one) for one in group]


async def test_a_reward_without_a_limit_is_called_directly_and_a_limited_one_in_a_thread() -> None:
    here = threading.current_thread().name
    for seconds, threads in ((None, {here}), (5.0, {"reward"})):
        reward, one = Asking(seconds=seconds), trajectory()
        await pay_in_time(reward, one)
        await settle_in_time(reward, [one])
        assert reward.threads == threads and one.reward == 0.5 and one.error == "" and one.ranked


async def test_calls_take_turns() -> None:
    at_work: list[int] = []

    def alone() -> None:
        at_work.append(1)
        time.sleep(0.01)
        assert len(at_work) == 1
        at_work.clear()

    reward, group = Asking(alone), [trajectory(n) for n in range(4)]
    await asyncio.gather(*(pay_in_time(reward, one) for one in group))
    assert [(one.reward, one.error) for one in group] == [(0.5, "")] * 4


async def test_a_reward_that_takes_too_long_halts_the_run_and_is_not_asked_again() -> None:
    done = threading.Event()
    reward = Asking(done.wait, 0.05)
    for _ in range(2):
        one = trajectory()
        with pytest.raises(Halted) as halted:
            await pay_in_time(reward, one)
        assert str(halted.value).endswith(
            "The reward Asking ran out of time: it took more than 0.05 s. Mend it, then resume the job."
        )
        assert halted.value.reason == "reward_timeout"
    assert len(reward.threads) == 1 and reward.daemons == {
        True
    }  # a hanging one does not hold up the end of the process
    done.set()


@pytest.mark.parametrize("seconds", [None, 5.0])
async def test_a_reward_that_raises_timeout_error_halts_the_run_and_any_other_error_marks_the_rollout(
    seconds: float | None,
) -> None:
    def raises(error: Exception) -> Callable[[], object]:
        def does() -> object:
            raise error

        return does

    for error, said in ((TimeoutError("no answer"), "no answer"), (TimeoutError(), "it raised TimeoutError")):
        reward: Any = Asking(raises(error), seconds)
        for call in (pay_in_time(reward, trajectory()), settle_in_time(reward, [trajectory()])):
            with pytest.raises(Halted, match=f"The reward Asking ran out of time: {said}"):
                await call
    one = trajectory()
    await pay_in_time(Asking(raises(KeyError("x")), seconds), one)
    assert one.error == "reward: KeyError: 'x'"


async def test_a_reward_of_single_rollouts_is_not_settled() -> None:
    def single(one: Trajectory) -> Payment:
        raise AssertionError("it was paid already")

    await settle_in_time(single, [trajectory()])
