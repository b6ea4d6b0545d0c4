"""A service whose answers are all cut, at the settings that are shipped: it is asked seldom, and it costs little."""

from __future__ import annotations

import asyncio
import time

import pytest

from budgets.llm.breaker import THRESHOLD
from budgets.llm.client import MeteredChatClient
from budgets.llm.types import Endpoint
from budgets.meter_port import FreeMeter
from experiences.rollouts.collect import Keep, RolloutLimits, RolloutPlan, collect
from experiences.rollouts.environments.dataset import dataset_environment
from experiences.rollouts.runtimes.base import Halted
from experiences.rollouts.runtimes.llm import LLMRuntime, Sampling
from experiences.rollouts.types import RolloutKey, Trajectory
from tests.experiences.rollouts.runtimes.test_llm import ROWS, Prices, paid
from tests.support.llm_server import ModelServer

ANSWER = "I add the two numbers. Answer: 42"
AT_ONCE = 16  # twice what a run has by default
# All that begin at once, and one more for each failure before the one that opens the circuit. Its cool-down is longer
# than the test, so that no probe comes to these.
MOST_REQUESTS = AT_ONCE + THRESHOLD - 1
AGAIN_SECONDS = 15  # after which a job that waits for a service is resumed at first
MOST_CALLS = 20  # whose worth may be charged


async def burst(client: MeteredChatClient, iteration: int, keep: Keep) -> None:
    """As many rollouts as a job runs at once. Raises Halted."""
    environment = dataset_environment(ROWS, {})
    await collect(
        [(RolloutKey(iteration, 0, n), environment.rows[0]) for n in range(AT_ONCE)],
        RolloutPlan(
            environment=environment,
            runtime=LLMRuntime(client, Sampling("small"), key_prefix=f"i{iteration}"),
            reward=paid,
            seed=1,
            limits=RolloutLimits(concurrency=AT_ONCE),
        ),
        kept={},
        keep=keep,
    )


async def asked_for(seconds: float, base_url: str, meter: FreeMeter) -> list[Trajectory]:
    """The trajectories of a job that asks a service for so long, and is resumed after each pause."""
    kept: list[Trajectory] = []
    ends = time.monotonic() + seconds
    async with MeteredChatClient(Endpoint(base_url, "small"), meter, Prices()) as client:
        try:
            async with asyncio.timeout(seconds):
                for iteration in range(1_000):
                    try:
                        await burst(client, iteration, kept.append)
                    except Halted:
                        await asyncio.sleep(AGAIN_SECONDS)
        except TimeoutError:
            assert time.monotonic() >= ends - 0.1
    return kept


async def worth_of_a_call() -> float:
    """Micro-dollars of one good call, as these rollouts make them. A server of its own: what one still has to read when
    its clients are gone would be counted among the requests that come next."""
    meter = FreeMeter()
    with ModelServer(brain=lambda _: ANSWER) as server:
        async with MeteredChatClient(Endpoint(server.base_url, "small"), meter, Prices()) as client:
            await burst(client, 0, lambda _: None)
    assert len(meter.bills) == AT_ONCE
    return meter.spent_micros / len(meter.bills)


MORE = pytest.mark.thorough(reason="five seconds of broken answers each")


@pytest.mark.parametrize("broken", ["cut_body", *(pytest.param(more, marks=MORE) for more in ("empty", "html"))])
async def test_seconds_of_broken_answers_cost_no_more_than_a_few_calls(broken: str) -> None:
    worth = await worth_of_a_call()
    with ModelServer(brain=lambda _: ANSWER, faults={broken: 1.0}) as server:
        meter = FreeMeter()
        kept = await asked_for(5.0, server.base_url, meter)
        assert kept == []
        assert AT_ONCE <= server.acted[broken] == len(meter.bills) <= MOST_REQUESTS
        assert 0 < meter.spent_micros <= MOST_CALLS * worth, meter.spent_micros / worth
        assert meter.reserved_micros == 0
