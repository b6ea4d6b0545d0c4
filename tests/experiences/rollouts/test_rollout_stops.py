"""The reason of a stop reaches the collector: a job that a person cancelled must not count as failed."""

from __future__ import annotations

import threading

import pytest

from experiences.rollouts.collect import RolloutLimits, RolloutPlan, collect, run_rollout
from experiences.rollouts.rewards.base import Payment
from experiences.rollouts.runtimes.action import ActionRuntime
from experiences.rollouts.runtimes.base import Halted
from experiences.rollouts.types import RolloutKey, Scenario, Trajectory
from tests.support.waiting import Interrupted, UniformChooser, WaitingEnvironment, plain_reward


async def test_the_cause_of_an_interruption_is_kept() -> None:
    error = RuntimeError("cancel")

    def check() -> None:
        raise Interrupted("cancel") from error

    with pytest.raises(Interrupted) as interrupted:
        await run_rollout(
            Scenario(0, "question"),
            RolloutKey(0, 0, 0),
            RolloutPlan(
                environment=WaitingEnvironment(steps=3),
                runtime=ActionRuntime(UniformChooser()),
                reward=plain_reward,
                seed=0,
                limits=RolloutLimits(),
                check=check,
            ),
        )
    assert interrupted.value.__cause__ is error


@pytest.mark.parametrize("how", ["hangs", "raises"])
async def test_a_reward_that_runs_out_of_time_halts_the_run_and_not_the_worker(how: str) -> None:
    """It hangs in a thread: the event loop goes on, and the rollouts beside it end at once."""
    over, waited = threading.Event(), list[bool]()

    class Late:
        timeout_seconds = 0.2

        def __call__(self, trajectory: Trajectory) -> Payment:
            if how == "raises":
                raise TimeoutError("the scorer's service did not answer")
            waited.append(over.wait(60))
            return Payment.at_the_end(trajectory, {"late": 1.0})

    with pytest.raises(Halted, match="ran out of time") as halted:
        await collect(
            [(RolloutKey(0, n, 0), Scenario(n, "question")) for n in range(8)],
            RolloutPlan(
                environment=WaitingEnvironment(steps=1),
                runtime=ActionRuntime(UniformChooser()),
                reward=Late(),
                seed=0,
                limits=RolloutLimits(),
            ),
            kept={},
            keep=lambda _: None,
        )
    assert halted.value.reason == "reward_timeout" and not waited
    over.set()
