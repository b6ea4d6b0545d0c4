"""P10: what the gateway adds to a call, with metering and traces on, beside the same calls made directly.

Rounds are interleaved (direct, gateway, direct, …) against one upstream. Another gateway is measured in the same rounds
where ``GATEWAY_RIVALS`` names it: ``name=http://127.0.0.1:8787/v1`` with commas between; ``GATEWAY_RIVAL_HEADERS`` is a
JSON object of headers by name, ``GATEWAY_UPSTREAM`` the port of the upstream, which the others have to know.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from statistics import median, quantiles
from typing import Any, Final

import aiohttp
from django.db import connection

from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.roles import Role
from agentcore_site.tenancy.services import api_key_create
from budgets.services import price_set
from evaluation.serving.models import AgentServing, ProductionTrace
from evaluation.serving.releases.services import release_make
from experiences.agents.services.agents import agent_create
from experiences.agents.services.endpoints import endpoint_create
from tests import factories
from tests.performance.table import Figure, at_least, at_most
from tests.support.llm_server import ModelServer
from tests.support.playbooks import PRICE
from tests.support.workers import Fleet, eventually

PORT: Final = os.environ.get("GATEWAY_UPSTREAM", "0")
CALLERS: Final = (1, 16, 64)
ROUNDS: Final = 3
SECONDS: Final = 4.0  # of one round
STREAMS: Final = 60
ASKED: Final = [{"role": "user", "content": "Where is my order? It was sent on Monday."}]


def calls() -> list[Figure]:
    member = factories.MembershipFactory(role=Role.ADMIN)
    admin = Actor(member.user)
    price_set(admin, model="small", organization=member.organization, input_micros=PRICE[0], output_micros=PRICE[1])
    quick = subprocess.Popen(
        [sys.executable, "-m", "tests.support.quick_server", "--latency", "0.005", "--port", PORT],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert quick.stdout is not None
    fleet = Fleet()
    try:
        upstream = quick.stdout.readline().strip()
        with ModelServer(prices={"small": PRICE}) as streaming:
            fast = served(admin, member.organization, "quick", upstream)
            slow = served(admin, member.organization, "streams", streaming.base_url)
            _, key = api_key_create(admin, name="bench", scopes=["gateway:call"])
            connection.close()
            port = fleet.web(GATEWAY_JOURNAL=tempfile.mkdtemp(prefix="journal-"))
            ours = f"http://127.0.0.1:{port}/v1"
            return asyncio.run(_measured(upstream, ours, streaming.base_url, key, fast, slow))
    finally:
        fleet.stop()
        quick.terminate()


def served(admin: Actor, organization: Any, name: str, base_url: str) -> str:
    options = {"default_concurrency": 256, "concurrency": {"production": 256}}
    endpoint = endpoint_create(admin, name=name, base_url=base_url, model="small", api_key="sk-1", options=options)
    agent = agent_create(admin, name=name, runtime="llm", environment="dataset", endpoint=endpoint, max_tokens=40)
    agent.system_prompt = "You answer customers."
    agent.save()
    release = release_make(admin, agent)
    AgentServing.objects.create(organization=organization, agent=agent, release=release)
    return f"agent:{agent.slug}"


async def _measured(direct: str, ours: str, streams: str, key: str, fast: str, slow: str) -> list[Figure]:
    rivals = dict(one.split("=", 1) for one in os.environ.get("GATEWAY_RIVALS", "").split(",") if one)
    rival_headers = json.loads(os.environ.get("GATEWAY_RIVAL_HEADERS", "{}"))
    targets = {"direct": (direct, "small", {}), "ours": (ours, fast, {"authorization": f"Bearer {key}"})}
    targets |= {name: (url, "small", rival_headers.get(name, {})) for name, url in rivals.items()}
    took: dict[tuple[str, int], list[float]] = defaultdict(list)
    rates: dict[tuple[str, int], list[float]] = defaultdict(list)
    for callers in CALLERS:
        for _ in range(ROUNDS):
            for name, (url, model, headers) in targets.items():
                found, seconds = await _round(url, model, headers, callers)
                took[name, callers] += found
                rates[name, callers].append(len(found) / seconds)
    figures = []
    for callers in CALLERS:
        base50, base99 = _percentiles(took["direct", callers])
        for name in targets:
            if name != "direct":
                p50, p99 = _percentiles(took[name, callers])
                what = (
                    f"{name}: added p50 / p99 for {callers} callers {p50 - base50:.1f} / {p99 - base99:.1f} ms, calls"
                )
                figures.append(at_least("P10", what, median(rates[name, callers]), 1, "/s", digits=0))
    figures.append(at_least("P10", "calls/s of 64 callers", median(rates["ours", 64]), 300, "/s", digits=0))
    figures.append(
        at_most("P10", "added to the first words of a stream", await _first_words(streams, ours, key, slow), 5, "ms")
    )
    made = sum(len(found) for (name, _), found in took.items() if name == "ours") + STREAMS
    await asyncio.to_thread(_all_traced, made)
    return figures


async def _round(url: str, model: str, headers: dict[str, str], callers: int) -> tuple[list[float], float]:
    """The milliseconds of each call of a round, and how long the round was."""
    found: list[float] = []
    began = time.perf_counter()

    async def caller(session: aiohttp.ClientSession, n: int) -> None:
        body = {"model": model, "messages": ASKED, "max_tokens": 20}
        while time.perf_counter() - began < SECONDS:
            at = time.perf_counter()
            async with session.post(f"{url}/chat/completions", json=body | {"user": f"{n}/{at}"}) as answer:
                assert answer.status == 200, await answer.text()
                await answer.read()
            found.append((time.perf_counter() - at) * 1e3)

    async with aiohttp.ClientSession(headers=headers, connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(caller(session, n) for n in range(callers)))
    return found, time.perf_counter() - began


async def _first_words(direct: str, ours: str, key: str, model: str) -> float:
    """By how many milliseconds a stream's first words come later, in the median."""
    added = []
    async with aiohttp.ClientSession() as session:
        for _ in range(STREAMS):
            plain = await _first_word(session, direct, "small", {})
            added.append(await _first_word(session, ours, model, {"authorization": f"Bearer {key}"}) - plain)
    return median(added)


async def _first_word(session: aiohttp.ClientSession, url: str, model: str, headers: dict[str, str]) -> float:
    body = {"model": model, "messages": ASKED, "stream": True, "max_tokens": 40}
    at, first = time.perf_counter(), 0.0
    async with session.post(f"{url}/chat/completions", json=body, headers=headers) as answer:
        async for line in answer.content:
            if not first and b'"content"' in line and b'"content":""' not in line.replace(b" ", b""):
                first = (time.perf_counter() - at) * 1e3
    return first


def _percentiles(milliseconds: list[float]) -> tuple[float, float]:
    cuts = quantiles(milliseconds, n=100)
    return cuts[49], cuts[98]


def _all_traced(n: int) -> None:
    """Each call has a trace."""
    try:
        eventually(lambda: ProductionTrace.objects.count() >= n, seconds=60, why=f"{n} traces")
    finally:
        connection.close()
