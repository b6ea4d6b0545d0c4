"""Ten thousand odd answers of a healthy model API on a real socket: no rollout crashes, each answer is a step."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from budgets.llm.client import MeteredChatClient
from budgets.llm.errors import Malformed
from budgets.llm.retry import RetryPolicy
from budgets.llm.types import Endpoint
from budgets.llm.wire import load
from budgets.meter_port import FreeMeter
from experiences.rollouts.collect import RolloutLimits, RolloutPlan, run_rollout
from experiences.rollouts.environments.dataset import dataset_environment
from experiences.rollouts.runtimes.llm import LLMRuntime, Sampling
from experiences.rollouts.types import RolloutKey, Trajectory
from tests.budgets.llm.test_wire import broken
from tests.experiences.rollouts.runtimes.test_llm import ROWS, Prices, paid

ANSWERS = 10_000
AT_ONCE = 16


def odd(rng: random.Random) -> bytes:
    """A whole answer with choices, of which something else is wrong: what is cut or no JSON never gets to an agent."""
    while True:
        body = broken(rng)
        try:
            value = load(body)
        except Malformed:
            continue
        if isinstance(value, dict) and value.get("choices") is not None:
            return body


class Broken(asyncio.Protocol):
    """Answers each request at once, with a body that no service should send."""

    served = 0
    rng = random.Random(7)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport, self.seen = transport, b""

    def data_received(self, data: bytes) -> None:
        self.seen += data
        while (end := self.seen.find(b"\r\n\r\n")) >= 0:
            head = self.seen[:end].lower()
            size = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
            if len(self.seen) < end + 4 + size:
                return
            self.seen = self.seen[end + 4 + size :]
            type(self).served += 1
            body = odd(self.rng)
            kind = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
            self.transport.write(kind % len(body) + body)  # type: ignore[attr-defined]


@pytest.mark.slow(reason="ten thousand answers over HTTP")
@pytest.mark.thorough(reason="a whole run, or a second program")
async def test_ten_thousand_malformed_answers_are_ten_thousand_steps_with_a_reason() -> None:
    server = await asyncio.get_running_loop().create_server(Broken, "127.0.0.1", 0)
    base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    environment = dataset_environment(ROWS, {})
    lived: list[Trajectory] = []
    meter = FreeMeter()

    async def rollouts(worker: int, client: MeteredChatClient) -> None:
        while Broken.served < ANSWERS:
            key = RolloutKey(worker, 0, len(lived))
            runtime = LLMRuntime(client, Sampling("small"), philosophy="cot", key_prefix=f"w{worker}")
            plan = RolloutPlan(environment, runtime, paid, seed=1, limits=RolloutLimits())
            one = await run_rollout(environment.rows[0], key, plan)
            lived.append(one)

    async with MeteredChatClient(
        Endpoint(base_url, "small"), meter, Prices(), retry=RetryPolicy(max_retries=0)
    ) as client:
        await asyncio.gather(*(rollouts(worker, client) for worker in range(AT_ONCE)))
    server.close()

    steps = [step for one in lived for step in one.steps]
    assert len(steps) == Broken.served >= ANSWERS
    kinds = Counter(step.action["type"] for step in steps)
    assert set(kinds) == {"malformed", "answer"} and min(kinds.values()) > 500, kinds
    assert all(step.result["error"] for step in steps if step.action["type"] == "malformed")
    errors = Counter(one.error.partition(":")[0] for one in lived)
    assert set(errors) == {"", "model"}, errors
    assert all("unusable answers in a row" in one.error for one in lived if one.error)
    assert meter.reserved_micros == 0
