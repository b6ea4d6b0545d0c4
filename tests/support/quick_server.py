"""A model server that answers every request with the same text after the same time, and costs next to nothing; with
``--events`` as a stream of so many events that are sent at once. ``--pause``: who asks for a stream gets a word after
each pause, others one body.

Where the client is measured, the server must not be: with a server that thinks, 500 requests at once wait for each
other there, and the last answer comes long after the time that was promised.
By hand: ``python -m tests.support.quick_server --latency .5``; prints its address.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections.abc import Sequence
from typing import Any

import uvloop

USAGE = {"prompt_tokens": 120, "completion_tokens": 4, "total_tokens": 124}
BODY = json.dumps(
    {
        "id": "quick",
        "object": "chat.completion",
        "model": "small",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Answer: 42"}}],
        "usage": USAGE,
    }
).encode()
END, LENGTH = b"\r\n\r\n", b"content-length:"
STREAMED, WORDS = re.compile(rb'"stream": ?true'), 10


def answer_of(events: int) -> bytes:
    """The whole answer: one body, or ``events`` events of a word each."""
    kind, body = "application/json", BODY
    if events:
        chunk = {"id": "quick", "object": "chat.completion.chunk", "model": "small"}
        word = chunk | {"choices": [{"index": 0, "delta": {"content": "word "}, "finish_reason": None}]}
        last = chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": USAGE}
        written = [f"data: {json.dumps(one)}\n\n" for one in [*[word] * events, last]]
        kind, body = "text/event-stream", "".join([*written, "data: [DONE]\n\n"]).encode()
    return f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


class Quick(asyncio.Protocol):
    """Counts the bytes of each request by its content-length, and answers when its time has come."""

    def __init__(self, latency: float, whole: bytes, pause: float = 0.0, words: Sequence[bytes] = ()) -> None:
        self.latency, self.whole, self.pause, self.words = latency, whole, pause, words
        self.seen = b""
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.seen += data
        while (end := self.seen.find(END)) >= 0:
            at = self.seen[:end].lower().find(LENGTH)
            size = int(self.seen[at + len(LENGTH) : self.seen.index(b"\r\n", at)])
            if len(self.seen) < end + len(END) + size:
                return
            streams = self.pause and STREAMED.search(self.seen, end, end + len(END) + size)
            self.seen = self.seen[end + len(END) + size :]
            for number, piece in enumerate(self.words if streams else [self.whole]):
                asyncio.get_running_loop().call_later(self.latency + number * self.pause, self.answer, piece)

    def answer(self, piece: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(piece)


async def serve(latency: float, port: int = 0, events: int = 0, pause: float = 0.0) -> None:
    loop, whole = asyncio.get_running_loop(), answer_of(events)
    words = [one + b"\n\n" for one in answer_of(WORDS).split(b"\n\n")[:-1]]
    server = await loop.create_server(lambda: Quick(latency, whole, pause, words), "127.0.0.1", port, backlog=2048)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A model server that costs next to nothing.")
    parser.add_argument("--latency", type=float, default=0.5)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--events", type=int, default=0)
    parser.add_argument("--pause", type=float, default=0.0)
    given = parser.parse_args()
    uvloop.run(serve(given.latency, given.port, given.events, given.pause))
