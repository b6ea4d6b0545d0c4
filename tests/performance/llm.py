"""500 model calls at once through one metered client, as a ratio to one of them. The server is another process, so that
its own work does not count as the client's; it answers after half a second."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from statistics import median

import aiohttp
import uvloop
from django.db import connection
from django.test import override_settings

from agentcore_site.jobs.models import Status
from agentcore_site.lib import gc_freeze
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.roles import Role
from budgets.llm.client import MeteredChatClient
from budgets.llm.request import encode
from budgets.llm.secret import Secret
from budgets.llm.types import Endpoint, Message
from budgets.meter_port import CallKey, FreeMeter
from budgets.metering.database_meter import DatabaseMeter
from budgets.metering.patient_meter import PatientMeter
from budgets.models import Reservation
from budgets.pricing import Price
from budgets.services import price_set
from experiences.agents.services.agents import agent_create
from experiences.agents.services.endpoints import endpoint_create
from experiences.rollouts.collect import RolloutLimits, RolloutPlan, collect
from experiences.rollouts.environments.dataset import dataset_environment
from experiences.rollouts.rewards import rewards
from experiences.rollouts.runtimes.llm import PHILOSOPHIES, LLMRuntime, Sampling
from experiences.rollouts.runtimes.llm.philosophies import PhilosophyPlay
from experiences.rollouts.types import RolloutKey
from tests import factories
from tests.performance.processor import parent_of, seconds_of
from tests.performance.table import Figure, at_most
from tests.support.llm_server import ModelServer
from tests.support.running import run_to_end
from tests.support.world import World
from training.models import TrainingRun
from training.services.runs import run_start

LATENCY = 0.5
SEED = 7  # of the world that a job learns
AT_ONCE = 500
TURNS = 8  # calls of one rollout, one after the other
TALK = (Message("system", "Answer briefly." * 20), Message("user", "What is 6 times 7? " * 20))


class OnePrice:
    def price(self, model: str) -> Price:
        return Price(model, 3_000_000, 15_000_000)


def model_server(latency: float) -> AbstractContextManager[str]:
    return server_process("quick_server", "--latency", str(latency))


@contextmanager
def server_process(module: str, *options: str) -> Iterator[str]:
    """A server in a process of its own; gives its address."""
    command = [sys.executable, "-m", f"tests.support.{module}", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[0]
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


async def bare(base_url: str) -> float:
    """CPU seconds of as many rollouts that only send the same bytes and read the answer, with the same library."""
    endpoint = Endpoint(base_url, "small")
    sent = encode(
        endpoint,
        TALK,
        tools=(),
        response_format=None,
        temperature=None,
        max_tokens=64,
        seed=None,
        stop=None,
        stream=False,
    )
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:

        async def one() -> None:
            for _ in range(TURNS):
                async with session.post(endpoint.url, data=sent.body) as answer:
                    await answer.read()

        worked = time.process_time()
        await asyncio.gather(*(one() for _ in range(AT_ONCE)))
        return time.process_time() - worked


def workers_loop() -> asyncio.Runner:
    """With the loop that a worker takes for such jobs."""
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


def calls() -> list[Figure]:
    with model_server(LATENCY) as base_url, workers_loop() as runner:
        single = runner.run(seconds(base_url, at_once=1, turns=TURNS))[0]
        gc_freeze.settle()  # as a worker does after its first slice
        runs = [runner.run(seconds(base_url, at_once=AT_ONCE, turns=TURNS)) for _ in range(3)]
        least = median(runner.run(bare(base_url)) for _ in range(3))
        one = runner.run(seconds(base_url, at_once=1, turns=1))[0]
        burst = median(runner.run(seconds(base_url, at_once=AT_ONCE, turns=1))[0] for _ in range(3))
    wall, cpu = median(run[0] for run in runs), median(run[1] for run in runs)
    own = 1000 * cpu / (AT_ONCE * TURNS)
    return [
        at_most(
            "L1", f"{AT_ONCE} LLM rollouts of {TURNS} calls at once, to one ({wall:.2f} s)", wall / single, 1.15, "×"
        ),
        at_most(
            "L1", f"{AT_ONCE} single calls that begin in one instant, to one ({burst:.2f} s)", burst / one, 1.15, "×"
        ),
        at_most(
            "L1", f"own time of a metered call ({own:.2f} ms), times the library's bare call", cpu / least, 2.0, "×"
        ),
    ]


def rollouts() -> list[Figure]:
    """The same with everything that a worker does: the ledger in PostgreSQL, the runtime, steps, scores."""
    from tests.performance.jobs import people

    _, home = people()
    with model_server(LATENCY) as base_url, workers_loop() as runner:
        one = runner.run(played(base_url, home.id, 1))
        gc_freeze.settle()  # as a worker does after its first slice
        many = median(runner.run(played(base_url, home.id, AT_ONCE)) for _ in range(3))
    name = f"{AT_ONCE} LLM rollouts in one worker, every call through the ledger, to one ({many:.2f} s)"
    return [at_most("L2", name, many / one, 1.15, "×")]


@override_settings(JOB_SLICE_SECONDS=600, JOB_ROUND_SECONDS=600)
def job() -> list[Figure]:
    """Processor time of a whole job, from its first rollout to its verdict, for each call of its model: of the process
    that works, beside PostgreSQL's. The model is another process."""
    member = factories.MembershipFactory(role=Role.ADMIN)
    actor, home = Actor(member.user), member.organization
    connection.ensure_connection()
    assert connection.connection is not None
    database = parent_of(connection.connection.info.backend_pid)
    with server_process("simulated_model", "--port", "0", "--seed", str(SEED)) as base_url:
        run = learning_run(actor, home, base_url)
        gc_freeze.settle()  # as a worker does after its first slice
        began, before = time.process_time(), seconds_of(database)
        ended = run_to_end(run.job)
        own, its = time.process_time() - began, seconds_of(database) - before
    assert ended.status == Status.COMPLETED, ended.error
    calls = Reservation.objects.filter(job_id=run.pk).count()
    name = f"processor time of a job for each of its {calls:,} model calls (PostgreSQL: {1000 * its / calls:.1f} ms)"
    return [at_most("L4", name, 1000 * own / calls, 6, "ms")]


def learning_run(actor: Actor, home: Organization, base_url: str) -> TrainingRun:
    """A queued job that learns the context of a simulated model."""
    micros = (150_000, 600_000)
    price_set(actor, model="small", organization=home, input_micros=micros[0], output_micros=micros[1])
    endpoint = endpoint_create(actor, name="model", base_url=base_url, model="small", api_key="sk-bench-123")
    agent = agent_create(
        actor,
        name="Learner",
        runtime="llm",
        philosophy="cot",
        environment="dataset",
        endpoint=endpoint,
        max_tokens=200,
        grouped_execution=True,
    )
    config = {
        "n_iterations": 18,
        "batch_size": 10,
        "n_trajectories_per_query": 6,
        "eval_interval": 9,
        "max_concurrent_rollouts": 32,
        "max_budget_usd": 5.0,
        "early_stopping": {"enabled": False},
        "context": {"epochs": 3},
        "seed": 3,
    }
    return run_start(actor, agent=agent, rows=World(SEED).rows(120, SEED), config=config)


def broken() -> list[Figure]:
    """A minute of cut answers, at the settings that are shipped."""
    from tests.experiences.rollouts.test_broken_answers import ANSWER, MOST_CALLS, asked_for, worth_of_a_call

    meter = FreeMeter()
    with ModelServer(brain=lambda _: ANSWER, faults={"cut_body": 1.0}) as server, workers_loop() as runner:
        worth = runner.run(worth_of_a_call())
        kept = runner.run(asked_for(60.0, server.base_url, meter))
    assert kept == []
    name = f"charged during 60 s of cut answers ({len(meter.bills)} requests), in good calls' worth"
    return [at_most("L3", name, meter.spent_micros / worth, MOST_CALLS, "calls")]


async def played(base_url: str, organization_id: uuid.UUID, n: int) -> float:
    """Wall seconds of ``n`` rollouts that make ``TURNS`` calls each."""
    environment = dataset_environment([{"query": "What is 6 times 7?", "expected_outcome": {"answer": 42}}] * n, {})
    endpoint = Endpoint(base_url, "small", Secret("sk-bench"), default_concurrency=AT_ONCE, max_retries=0)
    async with (
        DatabaseMeter(organization_id=organization_id) as meter,
        MeteredChatClient(endpoint, PatientMeter(meter), OnePrice()) as model,
    ):
        await rollout(model, "warm", 1)
        began = time.perf_counter()
        trajectories = await collect(
            [(RolloutKey(1, s.index, 0), s) for s in environment.scenarios("all", n, 0)],
            RolloutPlan(
                environment=environment,
                runtime=LLMRuntime(
                    model, Sampling("small", max_tokens=64), philosophy="talk", key_prefix=f"{n}-{began}"
                ),
                reward=rewards.get("outcome")({}),
                seed=1,
                limits=RolloutLimits(max_steps=TURNS + 1, concurrency=n),
            ),
            kept={},
            keep=lambda _: None,
        )
        seconds = time.perf_counter() - began
    assert {len(one.steps) for one in trajectories} == {TURNS} and not any(one.error for one in trajectories)
    return seconds


@PHILOSOPHIES.register("talk")
async def talk(play: PhilosophyPlay) -> bool:
    """So many thoughts, and the last one is the answer."""
    for _ in range(TURNS - 1):
        await play.think("thinker", "Think.", TALK[1].content)
    answer = await play.talk.ask(TALK)
    await play.say(answer.text, TALK[1].content)
    return True
