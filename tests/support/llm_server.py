"""A model server on a real socket that answers like a provider, and misbehaves on request.

It speaks OpenAI's chat completions (also streamed) and ``/v1/models``. What it does is scripted (``will``), drawn
by seed (``faults``) or plain answers of its ``brain``. It counts its own tokens and micro-dollars per model and key,
also for answers that never arrived, so that a test can compare the provider's bill with the ledger.
By hand: ``python -m tests.support.llm_server --port 8200 [--latency .5]``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import ssl
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

from tests.support.llm_acts import ACTS, Act, act
from tests.support.llm_call import Call, count_pieces

Brain = Callable[[list[dict[str, Any]]], "str | dict[str, Any]"]


def echo(messages: list[dict[str, Any]]) -> str:
    """The brain that is there when no other is given."""
    return f"You said: {messages[-1].get('content')}"


@dataclass
class Account:
    """The debt of one key for one model, by the server's own count; ``micros`` are micro-dollars."""

    requests: int = 0
    answered: int = 0  # requests for which the model worked
    prompt_tokens: int = 0
    completion_tokens: int = 0
    micros: int = 0


class ModelServer:
    """``with ModelServer() as server: server.base_url``; the same with ``async with``. Runs in a thread of its own.

    ``prices``: micro-dollars per million tokens (input, output) by model. ``report_cost`` adds ``usage.cost``.
    ``faults``: probability by act, drawn with ``seed``. ``keys``: the keys that are let in; None: all.
    ``count`` is its tokenizer; ``overhead`` what its template adds per message; ``tls`` makes it speak https.
    """

    def __init__(
        self,
        *,
        brain: Brain = echo,
        latency_s: float = 0.0,
        prices: Mapping[str, tuple[int, int]] | None = None,
        report_cost: bool = False,
        faults: Mapping[str, float] | None = None,
        seed: int = 0,
        keys: set[str] | None = None,
        count: Callable[[str], int] = count_pieces,
        overhead: int = 4,
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        assert set(faults or {}) <= set(ACTS)
        self.brain, self.latency_s, self.report_cost = brain, latency_s, report_cost
        self.prices, self.faults, self.keys = dict(prices or {}), dict(faults or {}), keys
        self.count, self.overhead, self.port, self.tls = count, overhead, port, tls
        self.script: deque[Act] = deque()
        self.accounts: dict[tuple[str, str], Account] = {}
        self.requests: deque[Call] = deque(maxlen=1_000)  # the last ones, for tests to look at
        self.acted: Counter[str] = Counter()
        self.inside = self.peak = 0
        self._random = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._ready, self._thread = threading.Event(), threading.Thread(target=self._run, daemon=True)
        self._stop: asyncio.Event | None = None
        self._failed: BaseException | None = None

    @property
    def base_url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}/v1"

    def will(self, *acts: Act | str) -> None:
        """Sets the acts of the next requests, one each; plain answers after them."""
        self.script.extend(one if isinstance(one, Act) else act(one) for one in acts)

    def account(self, model: str = "small", key: str = "") -> Account:
        return self.accounts.setdefault((model, key), Account())

    @property
    def owed(self) -> Account:
        """All accounts together."""
        total = Account()
        for one in self.accounts.values():
            for name in vars(total):
                setattr(total, name, getattr(total, name) + getattr(one, name))
        return total

    def start(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10) and self._failed is None, self._failed
        return self

    def stop(self) -> None:
        if self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return self.start()

    async def __aexit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except OSError as error:
            self._failed = error
            self._ready.set()
        finally:
            for task in (left := asyncio.all_tasks(self._loop)):
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(
            self._connection, "127.0.0.1", self.port, backlog=2048, limit=2**24, ssl=self.tls
        )
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._request(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").splitlines()[:-1]
        method, path, _ = first.split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        call = Call(self, reader, writer, headers, body)
        self.inside += 1
        self.peak = max(self.peak, self.inside)
        try:
            await self._answer(method, path.partition("?")[0], call)
        finally:
            self.inside -= 1
        return not writer.is_closing()

    async def _answer(self, method: str, path: str, call: Call) -> None:
        if self.keys is not None and call.key not in self.keys:
            return await ACTS["status"](call, {"code": 401, "error": {"message": f"Incorrect API key: {call.key}"}})
        if (method, path) == ("GET", "/v1/models"):
            models = [{"id": name, "object": "model"} for name in self.prices or {"small": None}]
            return await call.send(200, json.dumps({"object": "list", "data": models}).encode())
        if (method, path) != ("POST", "/v1/chat/completions"):
            return await ACTS["status"](call, {"code": 404, "error": {"message": f"no such path: {path}"}})
        if (problem := call.read()) is not None:
            return await ACTS["status"](call, {"code": 400, "error": {"message": problem}})
        self.requests.append(call)
        self.account(call.model, call.key).requests += 1
        if self.latency_s:
            await asyncio.sleep(self.latency_s)
        refusal = getattr(self.brain, "refusal", lambda _: None)(call.body)  # what this model can't do
        if refusal is not None:
            self.acted["refusal"] += 1
            return await ACTS["status"](call, {"code": 400, "error": refusal})
        chosen = self._chosen()
        self.acted[chosen.name] += 1
        return await ACTS[chosen.name](call, chosen.options)

    def _chosen(self) -> Act:
        if self.script:
            return self.script.popleft()
        drawn = self._random.random() if self.faults else 1.0
        for name, share in self.faults.items():
            if drawn < share:
                return Act(name)
            drawn -= share
        return Act("answer")


def main() -> None:
    parser = argparse.ArgumentParser(description="A model server that answers like a provider.")
    parser.add_argument("--port", type=int, default=8200)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--faults", default="{}", help='probabilities as JSON, e.g. {"error_503": 0.1}')
    parser.add_argument("--report-cost", action="store_true")
    given = parser.parse_args()
    with suppress(ImportError):  # a bench measures its client: the server should cost as little as it can
        import uvloop

        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    server = ModelServer(
        port=given.port, latency_s=given.latency, faults=json.loads(given.faults), report_cost=given.report_cost
    )
    with server:
        print(server.base_url, flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print(json.dumps({" ".join(name): vars(account) for name, account in server.accounts.items()}, indent=2))


if __name__ == "__main__":
    main()
