"""Large requests take turns: those of one key, or of one address without a key, are worked on two at a time.

Reading one takes up to seconds of the process, which pages and other callers share. Who sends many at once waits for
those before. A body counts from its last byte on, so a slow sender keeps no place, and who waits has no session of the
database yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final
from weakref import WeakValueDictionary

Application = Callable[[dict[str, Any], Any, Any], Awaitable[None]]

AT_ONCE: Final = 2
LARGE: Final = 64 * 1024  # bytes; packed bodies and those of unknown length count as large
METHODS: Final = ("POST", "PUT", "PATCH")


class LargeBodies:
    """An ASGI application in front of another one."""

    def __init__(self, behind: Application) -> None:
        self._behind = behind
        self._turns: WeakValueDictionary[bytes | str, asyncio.Semaphore] = WeakValueDictionary()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        headers = dict(scope["headers"])
        if scope["method"] not in METHODS or not _is_large(headers):
            await self._behind(scope, receive, send)
            return
        sender = headers.get(b"authorization") or str((scope.get("client") or ("",))[0])
        turns = self._turns.setdefault(sender, asyncio.Semaphore(AT_ONCE))
        taken = False

        async def receive_in_turn() -> Any:
            nonlocal taken
            message = await receive()
            if not taken and not message.get("more_body"):
                await turns.acquire()
                taken = True
            return message

        try:
            await self._behind(scope, receive_in_turn, send)
        finally:
            if taken:
                turns.release()


def _is_large(headers: dict[bytes, bytes]) -> bool:
    length = headers.get(b"content-length", b"")
    return not length.isdigit() or int(length) > LARGE or b"content-encoding" in headers
