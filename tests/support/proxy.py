"""A way to a service that can be cut, or freeze: for those behind it the service is away, or silent."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit, urlunsplit


class Proxy:
    """``with Proxy(url) as way: way.url``. ``freeze`` keeps every connection and passes nothing on, new ones are
    accepted and hear nothing; ``cut`` closes all and refuses new ones; ``heal`` ends both. ``cut_after`` and
    ``freeze_after`` do so once that many more bytes have passed, in both directions together."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._flows = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._links: set[asyncio.StreamWriter] = set()
        self._left: float = math.inf  # bytes until ``_then``
        self._then: Callable[[], None] = self._flows.clear
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def url(self) -> str:
        credentials = self._parts.netloc.rpartition("@")[0]
        netloc = f"{credentials}@127.0.0.1:{self.port}" if credentials else f"127.0.0.1:{self.port}"
        return urlunsplit(self._parts._replace(netloc=netloc))

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._listen())
        self._flows.set()
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    def freeze(self) -> None:
        self._loop.call_soon_threadsafe(self._flows.clear)

    def cut(self) -> None:
        self._run(self._close())

    def cut_after(self, size: int) -> None:
        self._then, self._left = self._close_now, size

    def freeze_after(self, size: int) -> None:
        self._then, self._left = self._flows.clear, size

    @property
    def is_open(self) -> bool:
        """Neither cut nor frozen."""
        return self._server is not None and self._flows.is_set()

    def aim(self, url: str) -> None:
        """From now on, new connections lead to the service at this address."""
        self._parts = urlsplit(url)

    def heal(self) -> None:
        self._left = math.inf
        self._loop.call_soon_threadsafe(self._flows.set)
        if self._server is None:
            self._run(self._listen())

    def _run(self, work: object) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)  # type: ignore[arg-type]

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._close_now()

    def _close_now(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for link in list(self._links):
            link.transport.abort()
        self._links.clear()

    async def _end(self) -> None:
        mine = asyncio.current_task()
        left = [task for task in asyncio.all_tasks() if task is not mine]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._links.add(writer)
        with suppress(asyncio.CancelledError):  # the end of the proxy
            await self._connect(reader, writer)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._flows.wait()
        try:
            there, out = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        except OSError:
            writer.transport.abort()
            return
        self._links.add(out)
        await asyncio.gather(self._pass(reader, out), self._pass(there, writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, OSError):
            while data := await reader.read(65536):
                if len(data) > self._left:
                    size, self._left = int(self._left), math.inf
                    writer.write(data[:size])
                    self._then()
                    data = data[size:]
                self._left -= len(data)
                await self._flows.wait()
                writer.write(data)
                await writer.drain()
        with suppress(Exception):
            writer.close()
        self._links.discard(writer)
