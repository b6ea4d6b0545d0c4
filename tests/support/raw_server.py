"""A server on a real socket that answers each request with given bytes, as a broken or odd upstream does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self


class RawServer:
    """``answer`` is given a request's body, and returns what is written before the connection is closed. Belongs to
    the running loop: ``async with RawServer(answer) as server``."""

    def __init__(self, answer: Callable[[bytes], bytes]) -> None:
        self._answer = answer
        self._server: asyncio.Server | None = None
        self.base_url = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, backlog=1024)
        self.base_url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
            writer.write(self._answer(await reader.readexactly(length)))
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def response(body: bytes, *, kind: str = "text/event-stream", length: int | None = None) -> bytes:
    """A response of status 200, whose end is that of its connection where it has no ``length``."""
    announced = b"" if length is None else b"content-length: %d\r\n" % length
    return b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\n%bconnection: close\r\n\r\n%b" % (kind.encode(), announced, body)
