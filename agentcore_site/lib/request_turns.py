"""Requests take turns: so many of one key, one session, one organisation and one address are worked on at once.

Threads of a process share one processor. Without turns a sender of many requests at once has most of it, and pages of
others wait. With turns who sends many waits for those before, which loses nothing: the processor is one.

A large body counts from its last byte on, so a slow sender keeps no place. Who waits has no session of the database
yet. A place is free again when the answer begins, so a long download keeps none.

Only the database says to which organisation a key or a session belongs, and a request asks it after its turn. The
process notes the organisation then. It counts the sender's next requests with those of the organisation's other keys,
sessions and addresses.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Hashable
from contextvars import ContextVar
from functools import partial
from hashlib import sha256
from typing import Any, Final
from weakref import WeakValueDictionary

from django.conf import settings

from agentcore_site.lib.loop_turns import LoopTurns

Application = Callable[[dict[str, Any], Any, Any], Awaitable[None]]

AT_ONCE: Final = 2  # of a sender
LARGE_AT_ONCE: Final = 1  # of a sender, beside the small ones
OF_ADDRESS: Final = 6  # of all senders of an address
LARGE: Final = 64 * 1024  # bytes; packed bodies and those of unknown length count as large
METHODS: Final = ("POST", "PUT", "PATCH")
WAIT_SECONDS: Final = 5.0  # for a small request: those before may wait for a service elsewhere
TURN_BYTES: Final = 256 * 1024  # of arriving bodies: about half a millisecond of the event loop

KNOWN: Final = 10_000  # senders whose organisation a process remembers

_sender: Final[ContextVar[Callable[[Hashable], None] | None]] = ContextVar("notes the sender's organisation")
_places: Final[ContextVar[list[asyncio.Semaphore] | None]] = ContextVar("places of this request", default=None)


def turn_end() -> None:
    """Ends the turn of this request, from its event loop: it only waits from now on."""
    _leave(_places.get() or [])


def sender_belongs_to(organization: Hashable) -> None:
    """Notes the organisation of the key or the session of this request."""
    if (note := _sender.get(None)) is not None:
        note(organization)


class RequestTurns:
    """An ASGI application in front of another one."""

    def __init__(self, behind: Application) -> None:
        self._behind = behind
        self._turns: WeakValueDictionary[object, asyncio.Semaphore] = WeakValueDictionary()
        self._organizations: dict[bytes, Hashable] = {}  # by a digest of the key or the session
        self._session = re.compile(rf"(?:^|; ?){re.escape(settings.SESSION_COOKIE_NAME)}=([^;]+)".encode())

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        headers = dict(scope["headers"])
        large = scope["method"] in METHODS and _is_large(headers)
        needed, held = self._needed(scope, headers, large), list[asyncio.Semaphore]()
        _places.set(held)
        _sender.set(partial(self._note, self._sender(headers)))
        reading, begun = LoopTurns(TURN_BYTES), False

        async def receive_in_turn() -> Any:
            nonlocal begun
            message = await receive()
            await reading.worked(len(message.get("body", b"")))
            if not begun and not message.get("more_body"):
                begun = True
                await _take(needed, held, None if large else WAIT_SECONDS)
            return message

        async def send_and_leave(message: Any) -> None:
            _leave(held)
            await send(message)

        try:
            await self._behind(scope, receive_in_turn, send_and_leave)
        finally:
            _leave(held)

    def _needed(self, scope: dict[str, Any], headers: dict[bytes, bytes], large: bool) -> list[asyncio.Semaphore]:
        """The places that a request needs, in the order in which everyone takes them."""
        address, sender, needed = str((scope.get("client") or ("",))[0]), self._sender(headers), []
        if large:
            needed.append(self._of((sender or address, "large"), LARGE_AT_ONCE))
        elif sender:
            needed.append(self._of(sender, AT_ONCE))
        if (organization := self._organizations.get(sender)) is not None:
            needed.append(self._of(organization, settings.ORGANIZATION_REQUESTS_AT_ONCE))
        return [*needed, self._of(address, OF_ADDRESS)]

    def _sender(self, headers: dict[bytes, bytes]) -> bytes:
        """A digest of the key, or of the session; empty for an anonymous request."""
        cookie = self._session.search(headers.get(b"cookie", b""))
        sender = headers.get(b"authorization") or (cookie[1] if cookie else b"")
        return sha256(sender).digest() if sender else b""

    def _note(self, sender: bytes, organization: Hashable) -> None:
        if not sender or self._organizations.get(sender) == organization:
            return
        if len(self._organizations) >= KNOWN:
            self._organizations.clear()
        self._organizations[sender] = organization

    def _of(self, whom: object, count: int) -> asyncio.Semaphore:
        return self._turns.setdefault(whom, asyncio.Semaphore(count))


async def _take(needed: list[asyncio.Semaphore], held: list[asyncio.Semaphore], seconds: float | None) -> None:
    """Takes all places that are free in time."""
    try:
        async with asyncio.timeout(seconds):
            for turns in needed:
                await turns.acquire()
                held.append(turns)
    except TimeoutError:
        return


def _leave(held: list[asyncio.Semaphore]) -> None:
    while held:
        held.pop().release()


def _is_large(headers: dict[bytes, bytes]) -> bool:
    length = headers.get(b"content-length", b"")
    return not length.isdigit() or int(length) > LARGE or b"content-encoding" in headers
