"""500 model calls at once through one metered client, as a ratio to one of them. The server is another process, so that
its own work does not count as the client's; it answers after half a second."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from budgets.llm.client import MeteredChatClient
from budgets.llm.secret import Secret
from budgets.llm.types import Endpoint, Message
from budgets.meter import CallKey, FreeMeter
from budgets.pricing import Price
from tests.performance.table import Figure, at_most

LATENCY = 0.5
AT_ONCE = 500
TURNS = 8  # calls of one rollout, one after the other
TALK = (Message("system", "Answer briefly." * 20), Message("user", "What is 6 times 7? " * 20))


class OnePrice:
    def price(self, model: str) -> Price:
        return Price(model, 3_000_000, 15_000_000)


@contextmanager
def model_server(latency: float) -> Iterator[str]:
    """A server in a process of its own; gives its address."""
    command = [sys.executable, "-m", "tests.support.llm_server", "--port", "0", "--latency", str(latency)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def client(base_url: str) -> MeteredChatClient:
    endpoint = Endpoint(base_url, "small", Secret("sk-bench"), default_concurrency=AT_ONCE, max_retries=0)
    return MeteredChatClient(endpoint, FreeMeter(), OnePrice())


async def rollout(one: MeteredChatClient, name: str, turns: int) -> None:
    for turn in range(turns):
        await one.complete(TALK, max_tokens=64, key=CallKey(f"{name}/{turn}", "training", "small"))


async def seconds(base_url: str, *, at_once: int, turns: int) -> tuple[float, float]:
    """(wall seconds, CPU seconds of this process) of so many rollouts at once."""
    async with client(base_url) as one:
        await rollout(one, "warm", 1)
        began, worked = time.perf_counter(), time.process_time()
        await asyncio.gather(*(rollout(one, f"r{n}", turns) for n in range(at_once)))
        return time.perf_counter() - began, time.process_time() - worked


def calls() -> list[Figure]:
    with model_server(LATENCY) as base_url:
        single = asyncio.run(seconds(base_url, at_once=1, turns=TURNS))[0]
        runs = [asyncio.run(seconds(base_url, at_once=AT_ONCE, turns=TURNS)) for _ in range(3)]
        one = asyncio.run(seconds(base_url, at_once=1, turns=1))[0]
        burst = median(asyncio.run(seconds(base_url, at_once=AT_ONCE, turns=1))[0] for _ in range(3))
    wall, cpu = median(run[0] for run in runs), median(run[1] for run in runs)
    own = 1000 * cpu / (AT_ONCE * TURNS)
    return [
        at_most(
            "L1", f"{AT_ONCE} LLM rollouts of {TURNS} calls at once, to one ({wall:.2f} s)", wall / single, 1.1, "×"
        ),
        at_most(
            "L1", f"{AT_ONCE} single calls that begin in one instant, to one ({burst:.2f} s)", burst / one, 1.1, "×"
        ),
        at_most("L1", "own time of a metered call", own, 0.5, "ms"),
    ]
