"""Connections between two requests: kept longer than callers keep them, and never closed over a request."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from agentcore_site import env
from agentcore_site.embedded.ports import free_port, wait_until
from agentcore_site.lib.timed_requests import TimedRequests

REQUEST, KEPT = 0.2, 2.0  # seconds
GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


async def application(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(env, "request_seconds", lambda: REQUEST)
    port = free_port(0)
    config = uvicorn.Config(
        application,
        port=port,
        http=TimedRequests,
        loop="uvloop",
        lifespan="off",
        timeout_keep_alive=KEPT,  # type: ignore[arg-type]
    )
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.run)
    thread.start()
    assert wait_until(lambda: server.started, 10.0)
    yield port
    server.should_exit = True
    thread.join()


def asked(caller: socket.socket) -> bytes:
    """The answer's body, b"" where the connection was closed."""
    caller.sendall(GET)
    found = b""
    while not found.endswith(b"ok") and (more := caller.recv(4000)):
        found += more
    return found[-2:]


def test_a_kept_connection_waits_longer_for_its_next_request_than_a_request_may_take(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as kept:
        for _ in range(3):
            assert asked(kept) == b"ok"
            time.sleep(2 * REQUEST)
        kept.sendall(GET[:3])  # now a request has begun, which has its own time
        kept.settimeout(KEPT)
        assert kept.recv(1) == b"" or b"408" in kept.recv(4000)


def test_an_idle_connection_is_closed_after_its_time(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as idle:
        assert asked(idle) == b"ok"
        idle.settimeout(5)
        assert idle.recv(1) == b""
