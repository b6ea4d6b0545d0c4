"""A service whose answers are all cut, at the settings that are shipped: it is asked seldom, and it costs little."""

from __future__ import annotations

import asyncio
import time

import pytest

from budgets.llm.client import MeteredChatClient
from budgets.llm.types import Endpoint
from budgets.meter import FreeMeter
from experiences.environments.dataset import dataset_environment
from experiences.rollout import RolloutLimits, collect
from experiences.runtimes.base import Halted
from experiences.runtimes.llm import LLMRuntime, Sampling
from experiences.types import RolloutKey, Trajectory
from tests.experiences.test_runtime_llm import ROWS, Prices, paid
from tests.support.llm_server import ModelServer

AT_ONCE = 8  # as a run has by default
AGAIN_SECONDS = 15  # after which a job that waits for a service is resumed at first
MOST_CALLS = 20  # whose worth may be charged


async def asked_for(seconds: float, base_url: str, meter: FreeMeter) -> list[Trajectory]:
    """What a job keeps that asks a service for so long, resumed whenever it paused."""
    kept: list[Trajectory] = []
    environment = dataset_environment(ROWS, {})
    ends = time.monotonic() + seconds
    async with MeteredChatClient(Endpoint(base_url, "small"), meter, Prices()) as client:
        try:
            async with asyncio.timeout(seconds):
                for iteration in range(1_000):
                    try:
                        await collect(
                            [(RolloutKey(iteration, 0, n), environment.rows[0]) for n in range(AT_ONCE)],
                            environment=environment,
                            runtime=LLMRuntime(client, Sampling("small"), key_prefix=f"i{iteration}"),
                            reward=paid,
                            seed=1,
                            limits=RolloutLimits(concurrency=AT_ONCE),
                            kept={},
                            keep=kept.append,
                            check=lambda: None,
                        )
                    except Halted:
                        await asyncio.sleep(AGAIN_SECONDS)
        except TimeoutError:
            assert time.monotonic() >= ends - 0.1
    return kept


async def worth_of_a_call(server: ModelServer) -> float:
    """Micro-dollars of one good call, as these rollouts make them."""
    meter = FreeMeter()
    await asked_for(0.5, server.base_url, meter)
    assert meter.bills
    return meter.spent / len(meter.bills)


@pytest.mark.parametrize("broken", ["cut_body", "empty", "html"])
async def test_seconds_of_broken_answers_cost_no_more_than_a_few_calls(broken: str) -> None:
    with ModelServer(brain=lambda _: "I add the two numbers. Answer: 42") as server:
        worth = await worth_of_a_call(server)
        server.faults = {broken: 1.0}
        before = server.acted[broken]
        meter = FreeMeter()
        kept = await asked_for(5.0, server.base_url, meter)
        assert kept == []
        assert 8 <= server.acted[broken] - before <= MOST_CALLS
        assert 0 < meter.spent <= MOST_CALLS * worth, meter.spent / worth
        assert meter.reserved == 0
