"""One request to the model server of the tests: what it asks, what it costs, and the ways to answer it."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.support.llm_server import ModelServer

PIECE = re.compile(r"\w{1,5}|\W")
MISSING = object()


def count_pieces(text: str) -> int:
    """This server's own tokenizer: words in pieces of five letters, all else by character."""
    return len(PIECE.findall(text))


class Call:
    """One request, and the ways to answer it."""

    def __init__(
        self,
        server: ModelServer,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        headers: dict[str, str],
        body: bytes,
    ) -> None:
        self.server, self._reader, self.writer, self.headers, self._raw = server, reader, writer, headers, body
        self.written = 0  # bytes of chunks
        self.key = headers.get("authorization", "").removeprefix("Bearer ")
        self.body: dict[str, Any] = {}

    def read(self) -> str | None:
        """The fault of the request, in a provider's words."""
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
    def gone(self) -> bool:
        """Whether the client has hung up."""
        return self._reader.at_eof() or self.writer.is_closing()

    @property
    def streamed(self) -> bool:
        return bool(self.body.get("stream"))

    @property
    def most(self) -> int:
        return int(self.body.get("max_completion_tokens") or self.body.get("max_tokens") or 10**6)

    def think(self) -> dict[str, Any]:
        """The brain's answer as a message; a brain with a ``reply`` is given the whole request."""
        reply = getattr(self.server.brain, "reply", None)
        result = self.server.brain(self.body["messages"]) if reply is None else reply(self.body)
        return {"role": "assistant", "content": result} if isinstance(result, str) else result

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
        """Writes the given bytes and hangs up."""
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
        self.written += len(piece)

    def _head(self, status: int, headers: Mapping[str, str], body: bytes = b"") -> None:
        lines = "".join(f"{name}: {value}\r\n" for name, value in {"x-request-id": "req-1", **headers}.items())
        self.writer.write(f"HTTP/1.1 {status} Scripted\r\n{lines}\r\n".encode() + body)


def _texts(message: Mapping[str, Any]) -> str:
    """All that a model reads or writes in one message or tool."""
    content = message.get("content")
    rest = message.get("tool_calls") or message.get("function")
    return (content if isinstance(content, str) else "") + (json.dumps(rest, ensure_ascii=False) if rest else "")


def _deltas(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A message as the chunks of a stream: text in pieces of 8 characters, arguments in halves, other fields first."""
    text = message.get("content") or ""
    deltas: list[dict[str, Any]] = [{"content": text[at : at + 8]} for at in range(0, len(text), 8)]
    if beside := {name: one for name, one in message.items() if name not in ("role", "content", "tool_calls")}:
        deltas.insert(0, beside)
    for index, call in enumerate(message.get("tool_calls") or []):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        half = len(arguments) // 2
        function = {**call["function"], "name": name, "arguments": arguments[:half]}
        first = {"index": index, **call, "function": function}
        deltas += [
            {"tool_calls": [first]},
            {"tool_calls": [{"index": index, "function": {"arguments": arguments[half:]}}]},
        ]
    return [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas or [{"role": "assistant"}]]
