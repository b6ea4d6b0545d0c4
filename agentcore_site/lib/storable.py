"""Values from outside that PostgreSQL can store: neither NUL in text nor lone surrogates, no NaN, no endless nesting.

What a caller sends is checked before any other processing, in every interface: it gets a 400 with a reason and never
a 500. What was paid for (the answer of a model, the result of a tool) can't be refused any more: it is made storable.
Pure, no Django.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import orjson

from agentcore_site.lib.errors import Invalid, TooLarge
from agentcore_site.lib.json_values import most_values

MAX_DEPTH: Final = 64
MAX_INTEGER: Final = 2**63
MOST_VALUES: Final = 2_000_000  # of a body in JSON
MOST_BITS: Final = 3_000  # of a whole number that is kept as text
HALF: Final = "it has half of a surrogate pair"
T = TypeVar("T")


def unstorable(value: Any, depth: int = 0) -> str:
    """The reason why a JSON value can't be stored, or "" if it can."""
    if isinstance(value, str):
        return _unstorable_text(value)
    if isinstance(value, float):
        return "" if math.isfinite(value) else "it has a number that is not finite"
    if isinstance(value, int):
        return "" if -MAX_INTEGER <= value < MAX_INTEGER else "it has a whole number of more than 64 bits"
    if not isinstance(value, Mapping | list | tuple):
        return ""
    if depth >= MAX_DEPTH:
        return f"it is nested deeper than {MAX_DEPTH} levels"
    items = [part for pair in value.items() for part in pair] if isinstance(value, Mapping) else value
    return next((reason for item in items if (reason := unstorable(item, depth + 1))), "")


def storable(value: T) -> T:
    """``value`` as it can be stored, itself if that holds already. NUL and halves of surrogate pairs become U+FFFD,
    numbers that are not finite null, whole numbers of more than 64 bits text, and what lies deeper than ``MAX_DEPTH``
    "…"."""
    try:
        if b"\\u0000" not in orjson.dumps(value):
            return value
    except TypeError:  # halves of surrogate pairs, whole numbers of more than 64 bits, too deep
        pass
    mended: T = _mended(value, 0)
    return mended


def _mended(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return value.replace("\x00", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):
        return value if -MAX_INTEGER <= value < MAX_INTEGER else str(value) if value.bit_length() < MOST_BITS else "…"
    if not isinstance(value, Mapping | list | tuple):
        return value
    if depth >= MAX_DEPTH:
        return "…"
    if isinstance(value, Mapping):
        return {_mended(str(name), depth): _mended(item, depth + 1) for name, item in value.items()}
    return [_mended(item, depth + 1) for item in value]


def in_utc(moment: datetime) -> datetime:
    """A moment in UTC, as the database accepts it: PostgreSQL knows no offsets of 16 hours and more, which ISO 8601
    has.

    Raises:
        ValueError: it is outside of the years 1 to 9999.
    """
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("it must lie in the years 1 to 9999") from error


def parse_json(raw: bytes) -> Any:
    """Parses a JSON document from outside.

    Raises:
        Invalid: it is not JSON, or it can't be stored.
        TooLarge: it may have more values than ``MOST_VALUES``.
    """
    if most_values(raw) > MOST_VALUES:
        raise TooLarge(f"The body may have more than {MOST_VALUES:,} values. Send it in smaller parts.")
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise Invalid(f"The body is not JSON: {error}.") from error
    if reason := unstorable(value):
        raise Invalid(f"The body can't be stored: {reason}.")
    return value


def _unstorable_text(text: str) -> str:
    if text.isascii():
        return "it has a NUL character" if "\x00" in text else ""
    if "\x00" in text:
        return "it has a NUL character"
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return HALF
    return ""
