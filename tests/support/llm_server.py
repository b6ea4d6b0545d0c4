"""A model server on a real socket that answers like a provider, and misbehaves when it is told to.

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
import re
import socket
import ssl
import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from tests.support.llm_acts import ACTS, Act, act

Brain = Callable[[list[dict[str, Any]]], "str | dict[str, Any]"]
PIECE = re.compile(r"\w{1,5}|\W")
MISSING = object()


def count_pieces(text: str) -> int:
    """This server's own tokenizer: words in pieces of five letters, all else by character."""
    return len(PIECE.findall(text))


def echo(messages: list[dict[str, Any]]) -> str:
    """The brain that is there when no other is given."""
    return f"You said: {messages[-1].get('content')}"


@dataclass
class Account:
    """What one key owes for one model, by the server's own count; ``micros`` are micro-dollars."""

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
        """What to do with the next requests, one act each; plain answers after that."""
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
        call = Call(self, writer, headers, body)
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


class Call:
    """One request, and the ways to answer it."""

    def __init__(self, server: ModelServer, writer: asyncio.StreamWriter, headers: dict[str, str], body: bytes) -> None:
        self.server, self.writer, self.headers, self._raw = server, writer, headers, body
        self.key = headers.get("authorization", "").removeprefix("Bearer ")
        self.body: dict[str, Any] = {}
        self.at = time.monotonic()

    def read(self) -> str | None:
        """What is wrong with the request, as a provider would say it."""
        try:
            self.body = json.loads(self._raw)
        except ValueError:
            return "the body is no JSON"
        if not isinstance(self.body.get("messages"), list) or not self.body["messages"]:
            return "messages is missing"
        return None if isinstance(self.body.get("model"), str) else "model is missing"

    @property
    def model(self) -> str:
        return str(self.body["model"])

    @property
    def streamed(self) -> bool:
        return bool(self.body.get("stream"))

    @property
    def most(self) -> int:
        return int(self.body.get("max_completion_tokens") or self.body.get("max_tokens") or 10**6)

    def think(self) -> dict[str, Any]:
        """The brain's answer as a message."""
        said = self.server.brain(self.body["messages"])
        return {"role": "assistant", "content": said} if isinstance(said, str) else said

    def bill(self, message: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Counts the call and puts it on the account; returns the usage. Without a message: what the brain says."""
        server, asked = self.server, self.body["messages"]
        message = self.think() if message is None else message
        given = [*asked, *self.body.get("tools", [])]
        prompt = sum(server.count(_texts(one)) + server.overhead for one in given)
        output = min(server.count(_texts(message)) + 1, self.most)
        price = server.prices.get(self.model, (0, 0))
        micros = -(-(prompt * price[0] + output * price[1]) // 1_000_000)
        account = server.account(self.model, self.key)
        account.answered += 1
        account.prompt_tokens += prompt
        account.completion_tokens += output
        account.micros += micros
        usage: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}
        return {**usage, "cost": micros / 1e6} if server.report_cost else usage

    def whole(self, message: Mapping[str, Any], finish: str, usage: object) -> dict[str, Any]:
        choice = {"index": 0, "message": message, "finish_reason": finish}
        value = {"id": "chatcmpl-1", "object": "chat.completion", "model": self.model, "choices": [choice]}
        return value if usage is None else {**value, "usage": usage}

    async def say(self, message: dict[str, Any], *, finish: str | None = None, usage: object = MISSING) -> None:
        """A good answer; ``usage`` replaces what is reported, but not what is billed."""
        billed = self.bill(message)
        reported = billed if usage is MISSING else usage
        text = message.get("content")
        if isinstance(text, str) and self.server.count(text) + 1 > self.most:
            message, finish = {**message, "content": "".join(PIECE.findall(text)[: self.most])}, "length"
        finish = finish or "stop"
        if not self.streamed:
            return await self.send(200, json.dumps(self.whole(message, finish, reported)).encode())
        chunks = [*_deltas(message), {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}]
        if reported is not None and (self.body.get("stream_options") or {}).get("include_usage"):
            chunks.append({"choices": [], "usage": reported})
        return await self.events([{"id": "chatcmpl-1", "model": self.model, **chunk} for chunk in chunks])

    async def say_half(self, message: dict[str, Any]) -> None:
        if self.streamed:
            chunks = _deltas(message)
            return await self.events(chunks[: max(1, len(chunks) // 2)], end=False)
        body = json.dumps(self.whole(message, "stop", None)).encode()
        return await self.send(200, body[: len(body) // 2], length=len(body))

    async def send(
        self,
        status: int,
        body: bytes,
        *,
        headers: Mapping[str, str] | None = None,
        kind: str = "application/json",
        length: int | None = None,
    ) -> None:
        lines = {
            "content-type": kind,
            "content-length": str(len(body) if length is None else length),
            **(headers or {}),
        }
        self._head(status, lines, body)
        await self.writer.drain()

    def plain(self, body: bytes, *, head: bytes = b"HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n") -> None:
        """Writes as it is told and hangs up."""
        self.writer.write(head + body)
        self.writer.close()

    async def chunks(self, pieces: Sequence[bytes], *, kind: str = "application/json", pause: float = 0.0) -> None:
        self._head(200, {"content-type": kind, "transfer-encoding": "chunked"})
        for piece in pieces:
            await self._chunk(piece)
            if pause:
                await asyncio.sleep(pause)
        await self.end_of_chunks()

    async def open_stream(self) -> None:
        self._head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})

    async def event(self, value: object) -> None:
        await self._chunk(b"data: " + json.dumps(value).encode() + b"\n\n")

    async def events(self, values: Sequence[object], *, end: bool = True) -> None:
        await self.raw_events([b"data: " + json.dumps(value).encode() + b"\n\n" for value in values], end=end)

    async def raw_events(self, lines: Sequence[bytes], *, end: bool = True) -> None:
        await self.open_stream()
        for line in lines:
            await self._chunk(line)
        if end:
            await self._chunk(b"data: [DONE]\n\n")
            await self.end_of_chunks()

    async def end_of_chunks(self) -> None:
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()

    def abort(self, *, hard: bool = False) -> None:
        """Drops the connection in the middle; ``hard``: with a reset instead of an end."""
        if hard:
            sock = self.writer.transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def _chunk(self, piece: bytes) -> None:
        self.writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        await self.writer.drain()

    def _head(self, status: int, headers: Mapping[str, str], body: bytes = b"") -> None:
        lines = "".join(f"{name}: {value}\r\n" for name, value in {"x-request-id": "req-1", **headers}.items())
        self.writer.write(f"HTTP/1.1 {status} Scripted\r\n{lines}\r\n".encode() + body)


def _texts(message: Mapping[str, Any]) -> str:
    """All that a model reads or writes in one message or tool."""
    content = message.get("content")
    rest = message.get("tool_calls") or message.get("function")
    return (content if isinstance(content, str) else "") + (json.dumps(rest, ensure_ascii=False) if rest else "")


def _deltas(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A message as the chunks of a stream: text in pieces of 8 characters, arguments in halves."""
    text = message.get("content") or ""
    deltas: list[dict[str, Any]] = [{"content": text[at : at + 8]} for at in range(0, len(text), 8)]
    for index, call in enumerate(message.get("tool_calls") or []):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        half = len(arguments) // 2
        first = {"index": index, "id": call["id"], "function": {"name": name, "arguments": arguments[:half]}}
        deltas += [
            {"tool_calls": [first]},
            {"tool_calls": [{"index": index, "function": {"arguments": arguments[half:]}}]},
        ]
    return [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas or [{"role": "assistant"}]]


def main() -> None:
    parser = argparse.ArgumentParser(description="A model server that answers like a provider.")
    parser.add_argument("--port", type=int, default=8200)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--faults", default="{}", help='probabilities as JSON, e.g. {"error_503": 0.1}')
    parser.add_argument("--report-cost", action="store_true")
    given = parser.parse_args()
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
