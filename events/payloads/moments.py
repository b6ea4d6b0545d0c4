"""Moments as events write them: UTC, ISO 8601, with a Z."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def written(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def read(text: str) -> datetime:
    """Raises:
    ValueError: it is no moment, or lies in no year that can be stored."""
    moment = datetime.fromisoformat(text)
    try:
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{text} lies in no year from 1 to 9999") from error


def after(moment: datetime, milliseconds: float) -> str:
    return written(moment + timedelta(milliseconds=milliseconds))
