"""A load generator that costs little: raw sockets, kept alive, requests at fixed times, independent of the answers.

``python tests/performance/ace_client.py PORT KEY RATE SECONDS CONNECTIONS PATH...`` prints one JSON object. RATE 0 asks
as fast as answers come. Latency counts from the moment at which a request was due, so that a server that stalls can't
hide it by being asked less.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections import deque
from itertools import cycle

import uvloop

TICK = 0.002


class Client(asyncio.Protocol):
    """One connection with one request under way."""

    def __init__(self, load: Load) -> None:
        self.load, self.buffer, self.due = load, b"", 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self.load.free.append(self)

    def connection_lost(self, error: Exception | None) -> None:
        """The server closes connections that rest for long."""
        if self in self.load.free:
            self.load.free.remove(self)

    def ask(self, request: bytes, due: float) -> None:
        self.due = due
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head = self.buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        at = self.buffer.find(b"content-length: ", 0, head) + 16
        length = int(self.buffer[at : self.buffer.index(b"\r", at)]) if at > 15 else 0
        if len(self.buffer) < head + 4 + length:
            return
        self.load.answered(self, self.buffer[9:12] == b"200")
        self.buffer = b""
        self.load.next(self)


class Load:
    def __init__(self, requests: list[bytes], rate: float, seconds: float) -> None:
        self.requests, self.rate, self.seconds = cycle(requests), rate, seconds
        self.free: list[Client] = []
        self.waiting: deque[float] = deque()
        self.latencies: list[float] = []
        self.wrong, self.over = 0, False

    def answered(self, client: Client, right: bool) -> None:
        self.latencies.append((time.perf_counter() - client.due) * 1000)
        self.wrong += not right

    def next(self, client: Client) -> None:
        """The next request that is due, or the connection rests."""
        if self.waiting:
            client.ask(next(self.requests), self.waiting.popleft())
        elif self.rate == 0 and not self.over:
            client.ask(next(self.requests), time.perf_counter())
        else:
            self.free.append(client)

    async def run(self) -> float:
        began, sent = time.perf_counter(), 0
        if self.rate == 0:
            for client in self.free[:]:
                self.free.remove(client)
                self.next(client)
            await asyncio.sleep(self.seconds)
        while self.rate and (now := time.perf_counter() - began) < self.seconds:
            while sent < now * self.rate:
                self.waiting.append(began + sent / self.rate)
                sent += 1
            while self.waiting and self.free:
                self.next(self.free.pop())
            await asyncio.sleep(TICK)
        took, self.over = time.perf_counter() - began, True
        await asyncio.sleep(0.5)
        return took


async def main() -> None:
    port, key, rate, seconds, connections, *paths = sys.argv[1:]
    requests = [
        f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
        for path in paths
    ]
    load = Load(requests, float(rate), float(seconds))
    for _ in range(int(connections)):
        await asyncio.get_running_loop().create_connection(lambda: Client(load), "127.0.0.1", int(port))
    gc.disable()
    took = await load.run()
    found = sorted(load.latencies)
    shares = {f"p{share}": round(found[int(len(found) * share / 100)], 3) for share in (50, 95, 99)}
    print(json.dumps({"answers": len(found), "wrong": load.wrong, "rate": round(len(found) / took, 1)} | shares))


if __name__ == "__main__":
    uvloop.run(main())
