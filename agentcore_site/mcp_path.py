"""``/mcp`` in front of Django, whose views can't speak ASGI.

The server behind it is loaded when the first client comes: the protocol's package takes half a second and 19 MB, which
every web process would pay for on sites that never use it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import cache
from importlib import import_module
from typing import Any, Final

Application = Callable[[dict[str, Any], Any, Any], Awaitable[None]]

PATH: Final = "/mcp"


class McpPath:
    """An ASGI application in front of another."""

    def __init__(self, behind: Application) -> None:
        self._behind = behind

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["path"].rstrip("/") == PATH:
            server = await asyncio.to_thread(_server)  # others are answered meanwhile
            await server(scope, receive, send)
        else:
            await self._behind(scope, receive, send)


@cache
def _server() -> Application:
    made: Application = import_module("agentcore_site.mcp_server").McpServer()
    return made
