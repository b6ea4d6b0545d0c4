"""Server-sent events, read by the standard: https://html.spec.whatwg.org/multipage/server-sent-events.html

Beyond the standard: a last event without its empty line counts, and so does a JSON object that a proxy writes into the
stream without ``data:``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from budgets.llm.errors import Malformed

BOM: Final = b"\xef\xbb\xbf"
FIELDS: Final = (b"data", b"event", b"id", b"retry", b":")  # a body that begins so is a stream


class Event(NamedTuple):
    """``kind``: the event's name; most have none."""

    data: str
    kind: str = ""


class EventReader:
    """Bytes in, events out. Raises Malformed where an event is longer than ``limit`` bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = b""
        self._begun = self._after_return = False
        self._bare = False  # the event under way is JSON without a field's name
        self._data: list[bytes] = []
        self._kind = b""
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[Event]:
        if not chunk:
            return
        if self._after_return and chunk[0] == 10:  # the second half of a line's end
            chunk = chunk[1:]
        self._after_return = chunk.endswith(b"\r")
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            yield from self._line(line)
        if len(self._rest) + self._size > self._limit:
            raise Malformed(f"An event of the stream is larger than {self._limit:,} bytes.")

    def end(self) -> Iterator[Event]:
        """The last event, where the server forgot its empty line."""
        yield from self._line(self._rest)
        yield from self._dispatched()

    def _line(self, line: bytes) -> Iterator[Event]:
        if not self._begun:
            self._begun, line = True, line.removeprefix(BOM)
        if not line:
            yield from self._dispatched()
            return
        if self._bare and line.startswith(b"data:"):
            yield from self._dispatched()
        if self._bare or (line[0] == 123 and not self._data):
            self._bare = True
            self._keep(line)
            return
        name, _, value = line.partition(b":")
        if name == b"data":
            self._keep(value.removeprefix(b" "))
        elif name == b"event":
            self._kind = value.strip()
        # Everything else is a comment (OpenRouter's heartbeat) or a field without meaning here.

    def _keep(self, line: bytes) -> None:
        self._data.append(line)
        self._size += len(line) + 6  # "data: " counts: lines without a letter must end, too
        if self._size > self._limit:
            raise Malformed(f"An event of the stream is larger than {self._limit:,} bytes.")

    def _dispatched(self) -> Iterator[Event]:
        data, kind = self._data, self._kind
        self._data, self._size, self._kind, self._bare = [], 0, b"", False
        if data:
            yield Event(b"\n".join(data).decode("utf-8", "replace"), kind.decode("utf-8", "replace"))


def begins_stream(body: bytes, *, labelled: bool) -> bool:
    """Whether a body is a stream of events, by its first bytes; its label (a content type) decides in doubt only,
    since servers and proxies mix them up."""
    start = body.lstrip().removeprefix(BOM).lstrip()[:8]
    if start.startswith(FIELDS):
        return True
    return labelled and start[:1] not in (b"{", b"[", b"<")
