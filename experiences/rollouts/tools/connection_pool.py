"""Connections to tool servers that are kept between uses, in one event loop. Pure, no Django."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

MOST_KEPT: Final = 64  # connections of a process
IDLE_SECONDS: Final = 120.0  # in which an unused one is kept


class Lendable(Protocol):
    @property
    def worn_out(self) -> bool:
        """True for a connection that will never connect again."""

    async def close(self) -> None: ...


Made = TypeVar("Made", bound=Lendable)


@dataclass
class _Kept(Generic[Made]):
    connection: Made
    users: int = 0
    closing: asyncio.TimerHandle | None = None


class ConnectionPool(Generic[Made]):
    """Lends connections by key. Equal keys share one, also at the same time. A key holds all that must not be shared:
    the owner, the address, the credentials. An unused one is closed after ``idle_s`` seconds, and before that where
    ``most`` are kept. Beyond ``most`` in use, a connection is its user's own.
    """

    def __init__(self, *, most: int = MOST_KEPT, idle_s: float = IDLE_SECONDS) -> None:
        self._most, self._idle_s = most, idle_s
        self._kept: dict[Hashable, _Kept[Made]] = {}
        self._ends: set[asyncio.Task[None]] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._kept)

    def lend(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """The connection of a key, made where there is none. Its user gives it back (``take_back``)."""
        kept = self._kept.get(key)
        if kept is not None and kept.connection.worn_out:
            del self._kept[key]
            if not kept.users:
                self._end(kept)
            kept = None
        if kept is None:
            kept = _Kept(make())
            if self._closed or not self._has_room():
                return kept.connection
            self._kept[key] = kept
        if kept.closing is not None:
            kept.closing.cancel()
            kept.closing = None
        kept.users += 1
        return kept.connection

    async def take_back(self, key: Hashable, connection: Made) -> None:
        """Keeps it for the next user, or closes one that is not the pool's."""
        kept = self._kept.get(key)
        if kept is None or kept.connection is not connection:
            await connection.close()
            return
        kept.users -= 1
        if not kept.users:
            self._kept[key] = self._kept.pop(key)  # unused for the shortest time: the last one to give way
            kept.closing = asyncio.get_running_loop().call_later(self._idle_s, self._expire, key)

    async def aclose(self) -> None:
        """Closes all connections, those in use too."""
        self._closed = True
        for key in list(self._kept):
            self._expire(key)
        await asyncio.gather(*self._ends)

    def _has_room(self) -> bool:
        """True where another connection may be kept. To make room, the one that is unused for longest is closed."""
        if len(self._kept) < self._most:
            return True
        unused = next((key for key, kept in self._kept.items() if not kept.users), None)
        if unused is None:
            return False
        self._expire(unused)
        return True

    def _expire(self, key: Hashable) -> None:
        self._end(self._kept.pop(key))

    def _end(self, kept: _Kept[Made]) -> None:
        if kept.closing is not None:
            kept.closing.cancel()
        end = asyncio.ensure_future(kept.connection.close())
        self._ends.add(end)
        end.add_done_callback(self._ends.discard)
