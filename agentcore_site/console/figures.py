"""A figure of a page: curves over time, drawn by static/js/figures.js from the table that ``parts/figure.html`` has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Final

from agentcore_site.lib.money_format import usd

NOTHING: Final = "–"


@dataclass(frozen=True, slots=True)
class FigureColumn:
    """``unit``: "moment", "number", "usd" or "count". ``draw``: "" for a curve, "dashed" for a line to compare with,
    "pace" for a forecast, "low" and "high" for the edges of a band."""

    title: str
    unit: str
    draw: str = ""


@dataclass(frozen=True, slots=True)
class FigureCell:
    value: Any
    text: str


@dataclass(frozen=True, slots=True)
class DrawnFigure:
    """``rows``: of each the horizontal place (a moment, a day or a number), then a value or None for each other column.
    ``axis``: the name of the vertical axis, if it is not that of the first curve. ``log``: a logarithmic scale, for
    positive values."""

    title: str
    columns: Sequence[FigureColumn]
    rows: Sequence[Sequence[Any]]
    note: str = ""
    axis: str = ""
    log: bool = False

    @property
    def cells(self) -> list[list[FigureCell]]:
        return [
            [_cell(value, column.unit) for value, column in zip(row, self.columns, strict=True)] for row in self.rows
        ]


def _cell(value: Any, unit: str) -> FigureCell:
    if value is None:
        return FigureCell("", NOTHING)
    if isinstance(value, datetime):
        return FigureCell(value.timestamp(), f"{value:%-d %b, %H:%M:%S}".removesuffix(":00"))
    if isinstance(value, date):
        return FigureCell(datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp(), f"{value:%-d %b}")
    if unit == "usd":
        return FigureCell(value, usd(value))
    return FigureCell(value, f"{value:,.0f}" if unit == "count" else f"{value:,.4g}")
