"""Calls of tools in a stream: their pieces are put together by id and by completeness, and not by their index alone.

Servers differ. Some number all calls 0, some number none, some repeat the name in each chunk or send the arguments as
an object. A new id with a name begins a new call, and so does a name after arguments that are whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple

from budgets.llm.errors import Malformed
from budgets.llm.halves import Halves, paired
from budgets.llm.opaque import merge, opaque_of_call, weight
from budgets.llm.usage import as_count
from budgets.llm.wire import arguments_read, function_in, load

EMPTY: Final = "{}"
CALL_SIZE: Final = 256  # what a tool call without a letter in it weighs against the limit


class CallPiece(NamedTuple):
    """A chunk's addition to a tool call, in OpenAI's form; ``id`` and ``name`` come with the first one."""

    number: int
    id: str
    name: str
    arguments: str
    opaque: Mapping[str, Any] = {}

    def as_json(self) -> dict[str, Any]:
        within: Mapping[str, Any] = self.opaque.get("function", {})
        function = {**({"name": self.name} if self.name else {}), "arguments": self.arguments, **within}
        first = {"id": self.id, "type": "function"} if self.id else {}
        return {"index": self.number, **first, **self.opaque, "function": function}


@dataclass
class _StreamedCall:
    number: int
    id: str
    index: int | None
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    opaque: dict[str, Any] = field(default_factory=dict)
    halves: Halves = field(default_factory=Halves)
    _whole: tuple[int, bool] = (0, False)

    @property
    def text(self) -> str:
        return "".join(self.arguments)

    @property
    def held(self) -> bool:
        """True until the end of the stream for arguments that don't begin as an object, and for an empty object before
        later arguments."""
        start = self._start
        return bool(start) and (start[0][0] != "{" or start == [EMPTY])

    @property
    def empty(self) -> bool:
        """True if no arguments have come yet, or only an empty object."""
        return self._start in ([], [EMPTY])

    @property
    def _start(self) -> list[str]:
        """The first two pieces with a letter."""
        return list(islice((piece for one in self.arguments if (piece := one.strip())), 2))

    def filled(self) -> None:
        """Takes an empty object away, in the place of which arguments come."""
        if self._start == [EMPTY]:
            self.arguments.clear()
            self._whole = (0, False)

    @property
    def complete(self) -> bool:
        """Whether its arguments are a whole object."""
        if self._whole[0] != len(self.arguments):
            self._whole = len(self.arguments), _is_whole(self.text)
        return self._whole[1]

    def value(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": self.text, **self.opaque.get("function", {})}
        return {"id": self.id, "type": "function", **self.opaque, "function": function}


class StreamedCalls:
    """All calls of one answer. ``grow`` is given the size of each addition, and raises Malformed at the limit."""

    def __init__(self, grow: Callable[[int], None]) -> None:
        self._grow = grow
        self._calls: list[_StreamedCall] = []
        self._by_id: dict[str, _StreamedCall] = {}
        self._by_index: dict[int, _StreamedCall] = {}
        self._numbers: set[int] = set()
        self._released = False

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, parts: Sequence[Any]) -> tuple[list[CallPiece], bool]:
        """The pieces that the parts of a chunk add, and whether the parts were in OpenAI's form already."""
        pieces, standard = [], True
        for position, part in enumerate(parts):
            if not isinstance(part, Mapping):
                standard = False
                continue
            piece, as_given = self._added(part, position if len(parts) > 1 else None)
            standard = standard and as_given
            if piece is not None:
                pieces.append(piece)
        return pieces, standard

    def released(self) -> list[CallPiece]:
        """At the end: the arguments that waited for it."""
        waiting = [] if self._released else [call for call in self._calls if call.held]
        self._released = True
        return [CallPiece(call.number, "", "", arguments_read(call.text)[1]) for call in waiting]

    def value(self) -> list[dict[str, Any]]:
        return [call.value() for call in sorted(self._calls, key=lambda call: call.number)]

    def _added(self, part: Mapping[str, Any], position: int | None) -> tuple[CallPiece | None, bool]:
        index = counted if (counted := as_count(part.get("index"))) is not None else position
        identity, function = _identity(part.get("id")), function_in(part) or {}
        given = function.get("name")
        name = paired(given) if isinstance(given, str) else ""
        text, is_text = _as_text(function.get("arguments"))
        call = self._call(identity, index, name, text)
        begins = call is None
        if call is None:
            call = self._begun(identity, index)
        elif text and call.complete and text.strip() == call.text.strip():
            text = ""  # the whole call once more
        if index is not None:
            self._by_index[index] = call
        added = self._named(call, name)
        written = ""
        if text:
            self._grow(len(text))
            if text.strip():
                call.filled()
            call.arguments.append(text)
            written = "" if call.held else call.halves.join(text)
        opaque = opaque_of_call(part)
        if opaque:
            self._grow(weight(opaque))
            merge(call.opaque, opaque)
        as_given = (
            is_text
            and written == (function.get("arguments") or "")
            and added == name
            and part.get("index") == call.number
            and isinstance(part.get("function", {}), Mapping)
            and (identity == call.id if begins else not identity)
        )
        if not (begins or added or written or opaque):
            return None, as_given
        return CallPiece(call.number, call.id if begins else "", added, written, opaque), as_given

    def _call(self, identity: str, index: int | None, name: str, text: str) -> _StreamedCall | None:
        """The call that a part goes on with; None: it begins another one."""
        call = self._by_id.get(identity) if identity else None
        if call is not None and index is not None and call.index not in (None, index) and name and call.complete:
            call = self._by_index.get(index)  # a server with one id for all
        elif call is None:
            call = self._by_index.get(index) if index is not None else self._calls[-1] if self._calls else None
            if call is None:
                return None
            goes_on = name in ("", call.name) and call.text.strip() not in (
                "",
                EMPTY,
            )  # an id of its own for each piece
            if identity and identity != call.id and (call.complete or (name and not goes_on)):
                return None
        if call is None:
            return None
        if name and call.complete and (text.strip() != call.text.strip() if text else name != call.name):
            return None
        if name and not identity and index is None and name != call.name and not call.arguments:
            return None
        return call

    def _begun(self, identity: str, index: int | None) -> _StreamedCall:
        self._grow(CALL_SIZE)
        number = index if index is not None and index not in self._numbers else max(self._numbers, default=-1) + 1
        call = _StreamedCall(number, identity or f"call_{number}", index)
        self._numbers.add(number)
        self._calls.append(call)
        if identity:
            self._by_id[identity] = call
        return call

    def _named(self, call: _StreamedCall, name: str) -> str:
        """The addition of a part to its call's name: nothing where the server repeats it in each chunk."""
        if not name or name == call.name:
            return ""
        added = name.removeprefix(call.name)
        if call.name and call.arguments and added == name:
            return ""  # another name in the middle of the arguments
        self._grow(len(added))
        call.name += added
        return added


def _identity(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return paired(value) if isinstance(value, str) else ""


def _as_text(value: Any) -> tuple[str, bool]:
    """Arguments as JSON, and whether they were a text."""
    if isinstance(value, str):
        return value, True
    if value is None or value == {}:
        return "", value is None
    return json.dumps(value), False


def _is_whole(text: str) -> bool:
    if not text.rstrip().endswith(("}", '"')):
        return False
    try:
        value = load(text)
        return isinstance(load(value) if isinstance(value, str) else value, Mapping)
    except Malformed:
        return False
