"""A site under a path of another one (``PUBLIC_URL=https://host/agentcore``), whether its proxy takes that path off or
not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from django.conf import settings

Application = Callable[[dict[str, Any], Any, Any], Awaitable[None]]


class Placed:
    """An ASGI application in front of another one, which sees paths as those of a site of its own."""

    def __init__(self, behind: Application) -> None:
        self._behind, self._place = behind, settings.SUB_PATH

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        path = scope["path"]
        if self._place and (path == self._place or path.startswith(f"{self._place}/")):
            scope = {**scope, "path": path[len(self._place) :] or "/"}
        await self._behind(scope, receive, send)
