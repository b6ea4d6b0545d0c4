"""Dashboards as pages, lines of CSV and JSON say them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Final

from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agentcore_site.console.svg import Picture, share
from agentcore_site.lib.figures import counted
from agentcore_site.lib.spreadsheets import csv_line
from agentcore_site.templatetags.figures import count, duration, figure, percent, points, usd
from evaluation.warehouse.dashboards import ChartColumn, Row
from evaluation.warehouse.selectors import DashboardFigures, ShownChart
from experiences.models import Agent

NOTHING: Final = "–"
ROWS: Final = 50  # of a table on a page; the file has them all
WRITTEN: Final[dict[str, Callable[[Any], str]]] = {
    "count": lambda value: count(round(value)),
    "number": figure,
    "share": percent,
    "points": points,
    "usd": usd,
    "seconds": duration,
    "text": str,
}


@dataclass(frozen=True, slots=True)
class ShownCell:
    """``text`` as a person reads it, ``value`` as a chart draws it; ``agent`` leads to an agent's page."""

    text: str
    value: Any
    column: ChartColumn
    agent: Agent | None = None
    picture: Picture | None = None


@dataclass(frozen=True, slots=True)
class ChartView:
    """``columns``: as a page has them. ``more``: how many rows are in the file only."""

    shown: ShownChart
    columns: list[ChartColumn]
    rows: list[list[ShownCell]]
    more: int = 0

    @property
    def body(self) -> SafeString:
        """The rows of the table as HTML. A dashboard has some nine hundred cells, for which a template takes 10 ms
        longer."""
        return format_html_join("\n", "<tr>{}</tr>", ([self._cells(row)] for row in self.rows))

    def _cells(self, row: list[ShownCell]) -> SafeString:
        cells = (
            (
                "number" if cell.column.is_number else "lead" if cell is row[0] else "",
                cell.column.title,
                "" if cell.value is None else cell.value,
                _content(cell),
            )
            for cell in row
        )
        return format_html_join("", '<td class="{}" data-label="{}" data-value="{}">{}</td>', cells)


def _content(cell: ShownCell) -> str:
    if cell.agent is not None:
        return format_html('<a href="{}">{}</a>', reverse("agent", args=[cell.agent.pk]), cell.text)
    return cell.text if cell.picture is None else format_html("{}{}", cell.text, cell.picture)


def chart_views(figures: DashboardFigures) -> list[ChartView]:
    agents = agents_of(figures, _rows)
    return [_view(chart, agents) for chart in figures.charts]


def _view(shown: ShownChart, agents: dict[uuid.UUID, Agent]) -> ChartView:
    drawn = {key for column in shown.columns if shown.chart.shape == "table" for key in column.interval or ()}
    columns = [column for column in shown.columns if column.key not in drawn]
    rows = [[_cell(column, row, agents, drawn) for column in columns] for row in _rows(shown)]
    return ChartView(shown, columns, rows, more=shown.more + len(shown.rows) - len(rows))


def _rows(chart: ShownChart) -> list[Row]:
    """The rows that a page has."""
    return chart.rows[:ROWS] if chart.chart.shape == "table" else chart.rows


def agents_of(
    figures: DashboardFigures, rows_of: Callable[[ShownChart], list[Row]] = lambda chart: chart.rows
) -> dict[uuid.UUID, Agent]:
    ids = {row["agent_id"] for chart in figures.charts for row in rows_of(chart) if row.get("agent_id")}
    return Agent.objects.filter(organization_id=figures.asked.organization).in_bulk(ids)


def _cell(column: ChartColumn, row: Row, agents: dict[uuid.UUID, Agent], drawn: Collection[str]) -> ShownCell:
    value = row.get(column.key)
    if column.unit == "agent":
        agent = agents.get(value) if value else None
        return ShownCell(agent.name if agent else "no agent", None, column, agent)
    if value is None or value == "":
        return ShownCell(NOTHING, None, column)
    if column.unit == "moment":
        moment = as_moment(value)
        text = f"{moment.day} {moment:%b}{'' if is_day(value) else f' {moment:%H:%M}'}"
        return ShownCell(text, moment.timestamp(), column)
    picture = None
    if column.interval and column.interval[0] in drawn:
        low, high = (row[key] for key in column.interval)
        picture = share(value, low, high, label=f"{percent(low)} to {percent(high)}", width=96)
    return ShownCell(WRITTEN[column.unit](value), value, column, picture=picture)


def is_day(value: date) -> bool:
    return not isinstance(value, datetime)


def as_moment(value: date) -> datetime:
    """The beginning of a day, UTC, or the moment itself."""
    return value if isinstance(value, datetime) else datetime(value.year, value.month, value.day, tzinfo=UTC)


def summary(figures: DashboardFigures) -> str:
    """The dashboard in a sentence or two; "" where there is nothing to say. Totals are those of the
    pictures over time: a table may have its first rows alone."""
    rows = {chart.chart.key: chart.rows for chart in figures.charts}
    return SUMMARIES[figures.dashboard.key](rows)


def _total(rows: Iterable[Row], key: str) -> float:
    return float(sum(row[key] for row in rows))


def _training(rows: dict[str, list[Row]]) -> str:
    begun, done, failed = (int(_total(rows["trainings"], key)) for key in ("trainings", "completed", "failed"))
    lived = int(_total(rows["collected"], "trajectories"))
    parts = []
    if begun:
        parts.append(f"{counted(begun, 'training job')}: {count(done)} completed, {count(failed)} failed.")
    if lived:
        rate = percent(_total(rows["collected"], "successes") / lived)
        parts.append(
            f"{counted(lived, 'trajectory', 'trajectories')}, of which {rate} succeeded,"
            f" for {usd(_total(rows['cost'], 'cost_usd'))}."
        )
    return " ".join(parts)


def _models(rows: dict[str, list[Row]]) -> str:
    """By the lower end of the interval: a model that was tried a few times is not the best one."""
    tried = [row for row in rows["models"] if row["model"]]
    if not tried:
        return ""
    best = max(tried, key=lambda row: row["success_low"])
    low, high = percent(best["success_low"]), percent(best["success_high"])
    rate, lived = percent(best["success_rate"]), count(best["trajectories"])
    return f"{best['model']} succeeds most surely: {rate} ({low} to {high}) of {lived}."


def _quality(rows: dict[str, list[Row]]) -> str:
    n = _total(rows["ends"], "trajectories")
    if not n:
        return ""
    ends = [percent(_total(rows["ends"], key) / n) for key in ("successes", "errors", "cuts")]
    ended = f"{ends[0]} succeeded, {ends[1]} ended with an error, {ends[2]} were cut off."
    return f"{counted(int(n), 'trajectory', 'trajectories')}: {ended}"


def _rewards(rows: dict[str, list[Row]]) -> str:
    n = _total(rows["over_time"], "rewarded")
    mean = _total(rows["over_time"], "reward_total") / n if n else None
    return f"{counted(int(n), 'reward')}, {figure(mean)} on average." if n else ""


SUMMARIES: Final[dict[str, Callable[[dict[str, list[Row]]], str]]] = {
    "training": _training,
    "models": _models,
    "trajectories": _quality,
    "rewards": _rewards,
}


def chart_csv(figures: DashboardFigures, shown: ShownChart) -> Iterator[bytes]:
    agents = agents_of(figures)
    yield csv_line(column.key for column in shown.columns)
    for row in shown.rows:
        yield csv_line(_csv_value(column, row.get(column.key), agents) for column in shown.columns)


def chart_rows(shown: ShownChart) -> Iterable[Row]:
    """Rows with the chart's columns alone."""
    return [{column.key: row.get(column.key) for column in shown.columns} for row in shown.rows]


def _csv_value(column: ChartColumn, value: Any, agents: dict[uuid.UUID, Agent]) -> Any:
    if column.unit == "agent":
        agent = agents.get(value)
        return agent.slug if agent else ""
    return value
