"""``python -m tests.performance.neighbour_floods DOOR``: one organisation asks a door as fast as it can.

What it needs comes as JSON by standard input. When it is ended it says how many of its requests were answered. It has
the lowest priority: its work would be on machines of its own.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import selectors
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import httpx
import nats
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

STREAMS: Final = 40
SLOW_CALLERS: Final = 300
CALLERS: Final = 16
UPLOAD: Final = 20 * 2**20  # bytes
SOCKETS: Final = 40  # of each caller, below the limit of a person
REST: Final = ("/api/v1/trajectories?page_size=100", "/api/v1/jobs", "/api/v1/audit-events", "/api/v1/agents")


class Flood:
    """``needs``: addresses and keys of the organisation."""

    def __init__(self, needs: dict[str, Any]) -> None:
        self.needs = needs
        self.address = ("127.0.0.1", needs["port"])
        self.base = f"http://127.0.0.1:{needs['port']}"
        self.answered = 0
        self.statuses = Counter[str]()  # of its answers, where it reads them
        self.headers = {"Authorization": f"Bearer {needs['key']}"}

    def gateway(self) -> None:
        """Streams whose events are all there, one after the other, and callers that send half a body."""
        body = json.dumps(
            {"model": self.needs["model"], "messages": [{"role": "user", "content": "?"}], "stream": True}
        ).encode()
        slow = [socket.create_connection(self.address) for _ in range(SLOW_CALLERS)]
        for one in slow:
            one.sendall(self._call(self.needs["slow_key"], b"{}" * 50)[:-50])
        opened = selectors.DefaultSelector()
        for _ in range(STREAMS):
            self._stream(opened, body)
        while True:
            for entry, _ in opened.select():
                sock: socket.socket = entry.fileobj  # type: ignore[assignment]
                read = sock.recv(2**18)
                entry.data[:] = (entry.data + read)[-40:]
                if not read or entry.data.endswith(b"0\r\n\r\n"):
                    self.answered += 1
                    opened.unregister(sock)
                    sock.close()
                    self._stream(opened, body)

    def _stream(self, opened: selectors.BaseSelector, body: bytes) -> None:
        sock = socket.create_connection(self.address)
        sock.sendall(self._call(self.needs["key"], body))
        opened.register(sock, selectors.EVENT_READ, bytearray())

    def _call(self, key: str, body: bytes) -> bytes:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n"
        return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body

    def otlp(self) -> None:
        """Packed exports of some megabytes."""
        body = base64.b64decode(self.needs["export"])
        more = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
        self._callers(lambda http: http.post("/api/v1/otlp/v1/traces", content=body, headers=more))

    def rest(self) -> None:
        """Lists."""
        paths = itertools.cycle(REST)
        self._callers(lambda http: http.get(next(paths)))

    def uploads(self) -> None:
        """Files that are no checkpoint."""
        form, file = {"agent": self.needs["agent"], "sha256": "0" * 64}, {"file": ("one.zip", os.urandom(UPLOAD))}
        self._callers(lambda http: http.post("/api/v1/checkpoints", data=form, files=file))

    def jobs(self) -> None:
        """Launches and cancels of jobs that train."""
        body = {"agent": self.needs["slug"], "config": {"n_iterations": 300}}

        def launch(http: httpx.Client) -> httpx.Response:
            answer = http.post("/api/v1/training-jobs", json=body)
            if answer.status_code != HTTPStatus.CREATED:
                for job in http.get("/api/v1/jobs?status=running").json()["results"]:
                    http.post(f"/api/v1/jobs/{job['id']}/cancel")
            return answer

        self._callers(launch)

    def websockets(self) -> None:
        """Connections to a job's page that are made, fed and closed."""
        url = f"ws://127.0.0.1:{self.needs['port']}/ws/jobs/{self.needs['job']}/"
        headers = {"Cookie": f"sessionid={self.needs['cookie']}", "Origin": self.base}

        def use(_: httpx.Client) -> None:
            held = []
            with suppress(OSError, WebSocketException):
                for _ in range(SOCKETS // CALLERS):
                    held.append(connect(url, additional_headers=headers, open_timeout=20, legacy=True))
                    for _ in range(20):
                        held[-1].send("x" * 1000)
            for one in held:
                one.close()

        self._callers(use)

    def nats(self) -> None:
        """Messages of five bytes."""
        asyncio.run(self._publish())

    async def _publish(self) -> None:
        client = await nats.connect(self.needs["nats_url"])
        while True:
            for _ in range(500):
                await client.publish(self.needs["subject"], b"flood")
            await client.flush()
            self.answered += 500

    def _callers(self, ask: Callable[[httpx.Client], Any]) -> None:
        def call() -> None:
            with httpx.Client(base_url=self.base, headers=self.headers, timeout=60) as http:
                while True:
                    try:
                        answer = ask(http)
                    except httpx.HTTPError as error:
                        self.statuses[type(error).__name__] += 1
                        continue
                    self.answered += 1
                    if answer is not None:
                        self.statuses[str(answer.status_code)] += 1

        for thread in [threading.Thread(target=call, daemon=True) for _ in range(CALLERS)]:
            thread.start()
        while True:
            time.sleep(60)


DOORS: Final = ("gateway", "otlp", "rest", "uploads", "nats", "websockets", "jobs")


if __name__ == "__main__":
    os.setsid()
    with suppress(OSError):  # else the kernel compares priorities within a session only
        Path("/proc/self/autogroup").write_text("19")
    os.nice(19)
    flood = Flood(json.load(sys.stdin))

    def end(*_: Any) -> None:
        print(flood.answered, dict(flood.statuses), flush=True)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    getattr(flood, sys.argv[1])()
