"""Check that values from outside can be stored at all, before any other processing.

PostgreSQL accepts neither NUL in text nor lone surrogates, JSON has no NaN, and unbounded nesting is an attack. One
check for every interface, so that such input gets a 400 with a reason and never a 500.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import orjson
from django.db.models import Field

from agentcore_site.lib.errors import Invalid

MAX_DEPTH: Final = 64
MAX_INTEGER: Final = 2**63


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


def as_column(field: Field[Any, Any], value: Any) -> Any:
    """A JSON value from outside, converted for comparison with a column.

    Raises:
        ValueError, TypeError, ValidationError: it can't be converted.
    """
    if reason := unstorable(value):
        raise ValueError(reason)
    found = field.to_python(value)
    if isinstance(found, datetime):
        return in_utc(found)
    field.run_validators(found)  # the range of a whole number
    return found


def parse_json(raw: bytes) -> Any:
    """Parses a JSON document from outside.

    Raises:
        Invalid: it is not JSON, or it can't be stored.
    """
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
        return "it has half of a surrogate pair"
    return ""
