"""Months, each named by its first day."""

from __future__ import annotations

from datetime import date


def month_after(month: date) -> date:
    return date(month.year + month.month // 12, month.month % 12 + 1, 1)
