"""A real MCP server, made with the package's own server side: over stdio as a program, over HTTP in a thread.

By hand: ``python tests/support/mcp_server.py`` speaks stdio. With ``--stubborn`` it stays when it is asked to end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from typing import Any, Self

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Image
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel

COUNTED: Counter[str] = Counter()
PATH = __file__


class Weather(BaseModel):
    city: str
    degrees: float


def make() -> MCPServer:
    server = MCPServer("test")

    @server.tool(description="Adds two numbers.")
    def add(a: int, b: int) -> int:
        COUNTED["add"] += 1
        return a + b

    @server.tool(name="text/shout it")
    def shout(text: str) -> str:
        return text.upper()

    @server.tool()
    def fail() -> str:
        raise ToolError("the disk is full")

    @server.tool()
    def weather(city: str) -> Weather:
        return Weather(city=city, degrees=21.5)

    @server.tool()
    def picture() -> Image:
        return Image(data=b"\x89PNG", format="png")

    @server.tool()
    async def slow(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "done"

    @server.tool()
    def big(size: int) -> str:
        return "x" * size

    @server.tool()
    def pid() -> int:
        return os.getpid()

    @server.tool()
    def child() -> int:
        return subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL).pid

    @server.tool()
    def variable(name: str) -> str:
        return os.environ.get(name, "(none)")

    @server.tool()
    def die() -> str:
        os._exit(3)

    return server


class MCPHTTP:
    """``with MCPHTTP() as server: server.url``. ``seen`` holds the headers of every request. A ``legacy`` one
    knows sessions and the handshake only, as servers before 2026 do."""

    def __init__(self, port: int = 0, *, stateless: bool = False, legacy: bool = False) -> None:
        self.seen: list[dict[str, str]] = []
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", port))
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        inner = make().streamable_http_app(stateless_http=stateless)

        async def app(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                self.seen.append({name.decode(): value.decode() for name, value in scope["headers"]})
            if legacy and scope["type"] == "http" and scope["method"] == "POST":
                request = await receive()
                if b"server/discover" in request.get("body", b""):
                    await send({"type": "http.response.start", "status": 400, "headers": []})
                    return await send({"type": "http.response.body", "body": b"Bad Request"})
                return await inner(scope, _again(request, receive), send)
            return await inner(scope, receive, send)

        self._server = uvicorn.Server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1))
        self._thread = threading.Thread(target=self._server.run, args=([self._listener],), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        while not self._server.started:
            time.sleep(0.005)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(10)
        self._listener.close()


def _again(first: Any, receive: Any) -> Any:
    """A ``receive`` that gives back what was taken from it."""
    left = [first]

    async def replayed() -> Any:
        return left.pop() if left else await receive()

    return replayed


if __name__ == "__main__":
    if "--silent" in sys.argv:  # never says a word
        time.sleep(600)
    if "--flood" in sys.argv:  # one endless line, and in a file how much of it was taken
        for taken in range(1, 1_600):
            os.write(1, b"x" * 65_536)
            with open(sys.argv[-1], "w") as file:
                file.write(str(65_536 * taken))
    if "--broken" in sys.argv:
        sys.exit(1)
    if "--stubborn" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    make().run("stdio")
    if "--stubborn" in sys.argv:
        time.sleep(600)
