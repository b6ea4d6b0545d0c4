"""P10: the console's sign-in page while the gateway passes on fast streams and slow callers hold connections open.

40 streams of 20,000 events, which the model's service sends at once, and 300 callers that send half a body.
"""

from __future__ import annotations

import http.client
import selectors
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from statistics import quantiles
from typing import Final

import orjson
from django.db import connection

from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.roles import Role
from agentcore_site.tenancy.services import api_key_create
from budgets.services import price_set
from tests import factories
from tests.performance.gateway import ASKED, served
from tests.performance.table import Figure, at_least, at_most
from tests.support.playbooks import PRICE
from tests.support.workers import Fleet

STREAMS, EVENTS, SLOW_CALLERS = 40, 20_000, 300
IDLE_REQUESTS: Final = 200
RATIO: Final = 3.0


class Streams(threading.Thread):
    """Reads all streams to their ends, with next to no work of its own."""

    def __init__(self, port: int, request: bytes) -> None:
        super().__init__(daemon=True)
        self.whole, self.done = 0, threading.Event()
        self._open = selectors.DefaultSelector()
        for _ in range(STREAMS):
            sock = socket.create_connection(("127.0.0.1", port))
            sock.sendall(request)
            self._open.register(sock, selectors.EVENT_READ, bytearray())

    def run(self) -> None:
        while self._open.get_map():
            for key, _ in self._open.select():
                sock: socket.socket = key.fileobj  # type: ignore[assignment]
                read = sock.recv(2**18)
                key.data[:] = (key.data + read)[-40:]
                if not read or key.data.endswith(b"0\r\n\r\n"):
                    self.whole += b"data: [DONE]" in key.data
                    self._open.unregister(sock)
                    sock.close()
        self.done.set()


def sign_in() -> list[Figure]:
    member = factories.MembershipFactory(role=Role.ADMIN)
    admin = Actor(member.user)
    price_set(admin, model="small", organization=member.organization, input_micros=PRICE[0], output_micros=PRICE[1])
    command = [sys.executable, "-m", "tests.support.quick_server", "--latency", "0", "--events", str(EVENTS)]
    fleet = Fleet()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as upstream, ExitStack() as held:
        try:
            assert upstream.stdout is not None
            model = served(admin, member.organization, "fast", upstream.stdout.readline().strip())
            _, key = api_key_create(admin, name="bench", scopes=["gateway:call"])
            _, slow = api_key_create(admin, name="slow", scopes=["gateway:call"])
            connection.close()
            port = fleet.web(GATEWAY_JOURNAL=tempfile.mkdtemp(prefix="journal-"))
            _page(port)
            left = iter(range(IDLE_REQUESTS))
            idle = _p95(port, lambda: next(left, None) is None)
            for _ in range(SLOW_CALLERS):
                sock = held.enter_context(socket.create_connection(("127.0.0.1", port)))
                sock.sendall(_request(slow, b"{}" * 50)[:-50])
            began = time.perf_counter()
            body = orjson.dumps({"model": model, "messages": ASKED, "stream": True, "max_tokens": 40})
            streams = Streams(port, _request(key, body))
            streams.start()
            busy = _p95(port, streams.done.is_set)
            seconds = time.perf_counter() - began
            print(
                f"sign-in p95 {idle * 1e3:.1f} -> {busy * 1e3:.1f} ms beside {seconds:.1f} s of streams",
                file=sys.stderr,
            )
            return [
                at_most("P10", f"sign-in page beside {STREAMS} fast streams: p95 / idle p95", busy / idle, RATIO, ""),
                at_least("P10", "streams that ended whole", streams.whole, STREAMS, "", digits=0),
            ]
        finally:
            fleet.stop()
            upstream.terminate()


def _request(key: str, body: bytes) -> bytes:
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def _p95(port: int, ended: Callable[[], bool]) -> float:
    """The seconds that 19 of 20 pages took at most."""
    took = []
    while not ended():
        began = time.perf_counter()
        _page(port)
        took.append(time.perf_counter() - began)
    return quantiles(took, n=20)[-1] if len(took) > 1 else max(took)


def _page(port: int) -> None:
    asking = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    asking.request("GET", "/sign-in/")
    answer = asking.getresponse()
    answer.read()
    assert answer.status == 200, answer.status
    asking.close()
