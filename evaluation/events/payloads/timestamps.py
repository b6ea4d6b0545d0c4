"""Timestamps of events: UTC, ISO 8601, with a Z."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache


def written(moment: datetime) -> str:
    return seconds_written(moment.timestamp())


def seconds_written(seconds: float) -> str:
    """Formats seconds since the epoch. Caches the formatted second: a relay writes thousands."""
    whole, thousandths = divmod(round(seconds * 1e3), 1_000)
    return f"{_second(whole)}.{thousandths:03d}Z"


@lru_cache(maxsize=4_096)
def _second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def read(text: str) -> datetime:
    """Raises:
    ValueError: not a timestamp, or in a year that can't be stored."""
    moment = datetime.fromisoformat(text)
    try:
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{text} lies in no year from 1 to 9999") from error
