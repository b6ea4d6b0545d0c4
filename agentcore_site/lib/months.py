"""Months, each named by its first day."""

from __future__ import annotations

from datetime import UTC, date, datetime


def month_start(month: date) -> datetime:
    """The first moment of a month (UTC)."""
    return datetime(month.year, month.month, 1, tzinfo=UTC)


def month_after(month: date) -> date:
    return date(month.year + month.month // 12, month.month % 12 + 1, 1)
