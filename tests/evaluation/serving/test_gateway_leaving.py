"""Callers that go away: what they asked for ends, is settled, and says so."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import orjson
import psycopg
import pytest
from django.db import OperationalError

from agentcore_site.tenancy.actors import Actor
from budgets.models import Reservation
from evaluation.serving.gateway.application import Gateway
from evaluation.serving.models import ProductionTrace
from tests.evaluation.serving.production import ASKED, Production, production, until
from tests.support.llm_acts import act
from tests.support.llm_server import ModelServer
from tests.support.playbooks import PRICE
from tests.support.workers import Fleet, eventually

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(prices={"small": PRICE}) as running:
        yield running


@pytest.fixture
def shop(fleet: Fleet, adam: Any, acme: Any, server: ModelServer, journal: str) -> Production:
    return production(fleet, Actor(adam), server, acme, GATEWAY_JOURNAL=journal)


def asks(shop: Production, *, stream: bool) -> socket.socket:
    """A request on a connection of its own."""
    body = orjson.dumps({"model": f"agent:{shop.agent.slug}", "messages": ASKED, "stream": stream})
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {shop.key}\r\n"
    sock = socket.create_connection(("127.0.0.1", shop.port), timeout=20)
    sock.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    return sock


def nothing_is_open(shop: Production, server: ModelServer) -> None:
    """No upstream's call goes on, and the ledger says what the traces say."""
    eventually(lambda: not server.inside, seconds=10, why="all upstream calls ended")
    eventually(lambda: not Reservation.objects.filter(state="held").exists(), seconds=20, why="all holds settled")
    rows = ProductionTrace.objects.filter(organization=shop.agent.organization)
    spent = sum(rows.values_list("cost_micros", flat=True))
    assert shop.paid(spent) == spent >= server.owed.micros


@pytest.mark.parametrize("stream", [True, False])
def test_a_caller_that_goes_away_ends_its_upstreams_call(shop: Production, server: ModelServer, stream: bool) -> None:
    server.will(act("endless_stream", pause=0.01) if stream else "hang")
    sock = asks(shop, stream=stream)
    if stream:
        assert b"200 OK" in sock.recv(4096)
    eventually(lambda: server.inside == 1, seconds=10, every=0.01)
    sock.close()
    left = time.monotonic()
    eventually(lambda: not server.inside, seconds=5, every=0.01, why="the upstream's call ended")
    assert time.monotonic() - left < 2
    [trace] = shop.traces(1)
    assert (trace.status, trace.error, trace.streamed) == ("interrupted", "the caller went away", stream)
    assert (trace.first_token_ms is not None) is stream
    nothing_is_open(shop, server)
    assert shop.ask().status_code == 200


def test_callers_that_leave_at_random_moments_leave_nothing_open(shop: Production, server: ModelServer) -> None:
    rng = random.Random(8)
    shop.ask()  # what is served is known by now
    server.latency_s = 0.05
    waits = [rng.uniform(0, 0.4) for _ in range(160)]
    server.will(*(rng.choice(["answer", "answer", "hang", act("endless_stream", pause=0.02)]) for _ in waits))

    def leave(waits: list[float]) -> None:
        for wait in waits:
            with asks(shop, stream=wait > 0.2):
                time.sleep(wait)

    threads = [threading.Thread(target=leave, args=(waits[n::16],)) for n in range(16)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    nothing_is_open(shop, server)
    by_status = dict.fromkeys(("ok", "interrupted"), 0)
    for trace in shop.traces(server.owed.requests):
        by_status[trace.status] += 1
    assert min(by_status.values()) > 10


def leaves_calls(shop: Production, fleet: Fleet, server: ModelServer, *, by: signal.Signals) -> list[bytes]:
    """Ends the web process with three calls under way. Returns what their callers receive."""
    server.will(*["hang"] * 3)
    callers = [asks(shop, stream=False) for _ in range(3)]
    eventually(lambda: server.inside == 3, seconds=10, every=0.01)
    assert Reservation.objects.filter(state="held").exists() and not ProductionTrace.objects.exists()
    os.kill(fleet.processes[-1].pid, by)
    fleet.processes[-1].wait(30)
    answers = []
    for one in callers:
        with one, suppress(ConnectionError):
            answers.append(one.recv(4096))
    return answers


def is_finished(shop: Production) -> bool:
    held = Reservation.objects.filter(state="held").exists()
    journals = list(Path(shop.extra["GATEWAY_JOURNAL"]).glob("*.journal"))
    return not held and ProductionTrace.objects.filter(status="interrupted").count() == 3 and len(journals) <= 1


@pytest.mark.thorough(reason="another program, killed")
@pytest.mark.parametrize("by", ["another web process", "the sweep"])
def test_what_a_killed_process_leaves_is_finished_without_a_call(
    shop: Production, fleet: Fleet, server: ModelServer, by: str
) -> None:
    if by == "another web process":
        fleet.web(**shop.extra)
        fleet.processes.append(fleet.processes.pop(0))
    else:
        fleet.worker(**shop.extra)
        fleet.beat(**shop.extra)
        time.sleep(10)  # both have started
        fleet.processes.append(fleet.processes.pop(0))
    leaves_calls(shop, fleet, server, by=signal.SIGKILL)
    assert until(lambda: is_finished(shop), 30) < 5


@pytest.mark.thorough(reason="another program, ended")
def test_a_process_that_is_asked_to_end_finishes_its_calls_itself(
    shop: Production, fleet: Fleet, server: ModelServer
) -> None:
    answers = leaves_calls(shop, fleet, server, by=signal.SIGTERM)
    assert [one.partition(b"\r\n")[0] for one in answers] == [b"HTTP/1.1 503 Service Unavailable"] * 3
    assert is_finished(shop)


def test_a_session_of_the_database_that_ends_is_a_503(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway, sent = Gateway(mock.Mock()), []

    async def ends(*_: Any) -> None:
        raise OperationalError("the connection is lost") from psycopg.OperationalError("server closed the connection")

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    monkeypatch.setattr(gateway, "_consumer", ends)
    asyncio.run(gateway({"path": "/v1/models", "headers": []}, mock.Mock(), send))
    assert sent[0]["status"] == 503 and (b"retry-after", b"5") in sent[0]["headers"]
