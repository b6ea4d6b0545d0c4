"""Limits of callers beside others at the gateway: turns of the event loop, connections, calls at once."""

from __future__ import annotations

import asyncio
import select
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import orjson
import pytest
import uvloop
from redis import Redis

from agentcore_site.lib.loop_turns import EVENT_BYTES, TURN_BYTES
from agentcore_site.tenancy.actors import Actor
from budgets.llm.request import ModelRequest
from budgets.llm.stream import StreamDelta
from budgets.llm.transport import Connection, Exchange
from budgets.llm.types import Answer, Endpoint
from evaluation.serving.gateway.calls_at_once import NAME, AtOnceFull, CallsAtOnce, CallSource
from tests.evaluation.serving.production import ASKED, Production, production
from tests.support.llm_acts import act
from tests.support.llm_server import ModelServer
from tests.support.playbooks import PRICE
from tests.support.quick_server import Quick, answer_of
from tests.support.workers import Fleet, eventually

EVENTS, STREAMS = 3_000, 4


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(prices={"small": PRICE}) as running:
        yield running


def test_streams_whose_events_are_all_there_leave_turns_to_others() -> None:
    turn, by_turn = 0, Counter[int]()

    class Counting:
        def event(self, delta: StreamDelta) -> bool:
            by_turn[turn] += 1
            return True

        def whole(self, body: bytes, answer: Answer) -> None:
            raise AssertionError("a stream was requested")

    async def others() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    async def read() -> None:
        loop = asyncio.get_running_loop()
        upstream = await loop.create_server(lambda: Quick(0.0, answer_of(EVENTS)), "127.0.0.1", 0)
        port = upstream.sockets[0].getsockname()[1]
        beside, body = loop.create_task(others()), orjson.dumps({"messages": ASKED, "stream": True})
        connection = Connection(Endpoint(f"http://127.0.0.1:{port}/v1", "small"))
        requests = [Exchange(ModelRequest(body, "", 1, 1, stream=True)) for _ in range(STREAMS)]
        found = await asyncio.gather(*(connection.exchange(one, listener=Counting()) for one in requests))
        beside.cancel()
        await connection.aclose()
        upstream.close()
        assert all(isinstance(one, Answer) and one.text == "word " * EVENTS for one in found)

    uvloop.run(read())
    assert max(by_turn.values()) <= STREAMS * (TURN_BYTES / EVENT_BYTES)
    assert len(by_turn) > STREAMS * EVENTS * EVENT_BYTES / TURN_BYTES


HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
BODY = HEAD + b"authorization: Bearer %s\r\ncontent-length: 100\r\n\r\n{"


@pytest.mark.thorough(reason="nine seconds of waiting at five doors")
@pytest.mark.django_db(transaction=True)
def test_slow_callers_are_given_up_at_every_door(
    fleet: Fleet, adam: Any, acme: Any, server: ModelServer, journal: str
) -> None:
    shop = production(fleet, Actor(adam), server, acme, GATEWAY_JOURNAL=journal, REQUEST_SECONDS="2")

    def sent(data: bytes) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", shop.port), timeout=10)
        sock.sendall(data)
        return sock

    def received(sock: socket.socket) -> bytes:
        """All until the connection is closed."""
        return b"".join(iter(lambda: sock.recv(4096), b""))

    page = b"POST /sign-in/ HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\na=1"
    rest = b"POST /api/v1/agents HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{"
    assert shop.ask().status_code == 200
    began = time.monotonic()
    with ExitStack() as held:
        late = [held.enter_context(sent(one)) for one in (HEAD, BODY % shop.key.encode(), page, rest)]
        silent, drips = held.enter_context(sent(b"")), held.enter_context(sent(HEAD))
        assert shop.ask().status_code == 200  # a caller that sends at once is answered
        while not select.select([drips], [], [], 0.1)[0]:
            drips.sendall(b"x")
        for sock in (*late, drips):
            assert received(sock).startswith(b"HTTP/1.1 408 Request Timeout\r\n")
        assert received(silent) == b"" and time.monotonic() - began < 20
    # An answer takes its time: the limit is of the request alone.
    server.latency_s = 2.5
    assert shop.ask().status_code == 200


@pytest.mark.thorough(reason="two web processes")
@pytest.mark.django_db(transaction=True)
def test_streams_at_once_are_limited_over_all_processes(
    fleet: Fleet, adam: Any, acme: Any, server: ModelServer, journal: str
) -> None:
    extra = {"GATEWAY_JOURNAL": journal, "GATEWAY_STREAMS_PER_KEY": "2", "GATEWAY_CALLS_PER_ORGANIZATION": "3"}
    shop = production(fleet, Actor(adam), server, acme, **extra)
    other = Production(shop.agent, shop.release, shop.key, fleet.web(**extra), extra)
    server.will(*(act("endless_stream", pause=0.05) for _ in range(2)))
    body = orjson.dumps({"model": f"agent:{shop.agent.slug}", "messages": ASKED, "stream": True})
    head = HEAD + f"authorization: Bearer {shop.key}\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    with ExitStack() as held:
        for _ in range(2):
            sock = held.enter_context(socket.create_connection(("127.0.0.1", shop.port), timeout=10))
            sock.sendall(head + body)
            assert b"200 OK" in sock.recv(4096)
        refused = shop.ask(stream=True)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert refused.json()["error"]["message"].startswith("This key may have 2 streams at once.")
        assert shop.ask().status_code == 200
        time.sleep(1)
        assert other.ask(stream=True).status_code == 429 and other.ask().status_code == 200
    eventually(lambda: other.ask(stream=True).status_code == 200, seconds=5, why="the places are free")


@pytest.mark.parametrize("kind", ["calls", "streams"])
@pytest.mark.parametrize("whose", ["key", "organization", "address"])
def test_calls_at_once_have_limits_of_key_organisation_and_address(kind: str, whose: str, settings: Any) -> None:
    setattr(settings, f"GATEWAY_{kind}_PER_{whose}".upper(), 2)
    one = CallsAtOnce()
    caller, other = CallSource("k", "o", "a"), CallSource("l", "p", "b")
    with one.counted(kind, caller):
        full = pytest.raises(AtOnceFull, match=f"This {whose} may have 2 {kind} at once")
        with one.counted(kind, caller), one.counted(kind, other), full, one.counted(kind, caller):
            pass
        with one.counted(kind, caller):
            pass
    assert not one._own  # nothing of what has ended is kept


async def test_processes_know_each_others_calls_and_limit_their_own_while_redis_is_away(
    broker: Redis, settings: Any
) -> None:
    settings.GATEWAY_CALLS_PER_KEY = 2
    one, other, caller = CallsAtOnce(), CallsAtOnce(), CallSource("k", "o", "a")
    with one.counted("calls", caller), other.counted("calls", caller):
        await one.exchange()
        await other.exchange()
        with pytest.raises(AtOnceFull), other.counted("calls", caller):
            pass
        broker.hset(NAME, one._process, f"1 {orjson.dumps({'calls:key:k': 1}).decode()}")  # it was killed long ago
        await other.exchange()
        with other.counted("calls", caller):
            pass
        assert one._process.encode() not in broker.hkeys(NAME)
        await one.exchange()
        await other.exchange()
        await other.aclose()
        settings.REDIS_URL = "redis://127.0.0.1:1/0"
        await other.exchange()
        with other.counted("calls", caller), pytest.raises(AtOnceFull), other.counted("calls", caller):
            pass
    await one.aclose()
