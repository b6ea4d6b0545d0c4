"""Bodies of requests as they were before their sender packed them (``Content-Encoding``). No Django.

Nothing is unpacked further than a door takes: some kilobytes may unpack to gigabytes.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, Protocol

PIECE: Final = 256 * 1024  # bytes that are unpacked at once
ARRIVES: Final = 64 * 1024  # packed bytes that are read at once
GZIP: Final = 16 + zlib.MAX_WBITS
NAMES: Final = {"gzip": GZIP, "x-gzip": GZIP, "deflate": zlib.MAX_WBITS}
ACCEPTED: Final = "gzip, deflate"

Receive = Callable[[], Awaitable[Any]]


class BodyRefused(ValueError):
    """A body that can't be read; ``status`` is that of the answer, the message says what to change."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class Unpacking:
    """Unpacks a body piece by piece. Raises BodyRefused where it is not packed as its sender says."""

    def __init__(self, encoding: str) -> None:
        """Raises BodyRefused: nothing here unpacks this encoding."""
        self._name = encoding.strip().lower()
        if self._name not in NAMES:
            raise BodyRefused(400, f"Content-Encoding: {ACCEPTED} or none.")
        self._stream: Any = None
        self._left = b""

    def feed(self, data: bytes) -> None:
        self._left += data

    def piece(self) -> bytes:
        """At most ``PIECE`` bytes; empty when more has to be fed."""
        while self._left:
            if self._stream is None:
                self._stream = self._begun()
            if self._stream is None:
                return b""
            try:
                found: bytes = self._stream.decompress(self._left, PIECE)
            except zlib.error as error:
                raise BodyRefused(400, f"The body is no {self._name}.") from error
            self._left = self._stream.unconsumed_tail
            if self._stream.eof:  # another member of a gzip file may follow
                self._left, self._stream = self._stream.unused_data, None
            if found:
                return found
        return b""

    def ended(self) -> None:
        """To be called after the last piece. Raises BodyRefused: the body ends too early."""
        if self._stream is not None or self._left:
            raise BodyRefused(400, f"The body's {self._name} ends too early.")

    def _begun(self) -> Any:
        """None: two bytes have to be there first. Some senders leave out the frame of ``deflate``."""
        if self._name != "deflate":
            return zlib.decompressobj(GZIP)
        if len(self._left) < 2:
            return None
        framed = self._left[0] & 15 == zlib.DEFLATED and int.from_bytes(self._left[:2], "big") % 31 == 0
        return zlib.decompressobj(zlib.MAX_WBITS if framed else -zlib.MAX_WBITS)


class UnpackedStream(io.RawIOBase):
    """A file of packed bytes as the file that it was, up to ``most`` bytes. Reading raises what ``refused`` makes of a
    BodyRefused."""

    def __init__(self, packed: Readable, encoding: str, most: int, refused: Callable[[BodyRefused], Exception]) -> None:
        self._packed, self._encoding, self._most, self._refused = packed, encoding, most, refused
        self._unpacking: Unpacking | None = None
        self._piece = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        try:
            if not self._piece:
                self._piece = memoryview(self._next())
        except BodyRefused as error:
            raise self._refused(error) from error
        size = min(len(into), len(self._piece))
        into[:size] = self._piece[:size]
        self._piece = self._piece[size:]
        return size

    def _next(self) -> bytes:
        self._unpacking = unpacking = self._unpacking or Unpacking(self._encoding)
        while not (found := unpacking.piece()):
            if not (data := self._packed.read(ARRIVES)):
                unpacking.ended()
                return b""
            unpacking.feed(data)
        self._most -= len(found)
        if self._most < 0:
            raise too_large()
        return found


def too_large(most: int = 0) -> BodyRefused:
    return BodyRefused(413, f"The body is larger than {most // 2**20} MB." if most else "The body is too large.")


async def body_of(headers: Iterable[tuple[bytes, bytes]], receive: Receive, most: int) -> bytes:
    """The whole body of an ASGI request. Raises BodyRefused."""
    named = ",".join(value.decode("latin-1") for name, value in headers if name.lower() == b"content-encoding")
    unpacking = None if named.strip().lower() in ("", "identity") else Unpacking(named)
    read, arrived, more = bytearray(), 0, True
    while more:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise BodyRefused(400, "The connection ended before the body did.")
        data, more = event.get("body", b""), bool(event.get("more_body"))
        arrived += len(data)  # empty members of a gzip file unpack to nothing
        if unpacking is None:
            read += data
        else:
            unpacking.feed(data)
            while len(read) <= most and (piece := unpacking.piece()):
                read += piece
        if max(len(read), arrived) > most:
            raise too_large(most)
    if unpacking is not None:
        unpacking.ended()
    return bytes(read)
