"""Data of dashboards: from the warehouse if it is set up and complete, else from the roll-ups."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

from django.core.cache import cache
from django.utils import timezone

from agentcore_site.lib.errors import Invalid, Missing
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import current_organization, require
from evaluation.warehouse.clickhouse.transports import WarehouseError, WarehouseUnavailable
from evaluation.warehouse.dashboards import (
    DASHBOARDS,
    ChartColumn,
    Dashboard,
    DashboardChart,
    DashboardQuery,
    DashboardQuestion,
    Row,
    columns_of,
)
from evaluation.warehouse.loading import store_configured
from evaluation.warehouse.models import ChangeSink, RowChange, WarehouseStore
from evaluation.warehouse.rollups import RollupStore
from experiences.models.agent_lookup import agent_get

log = logging.getLogger(__name__)

PERIODS: Final[dict[str, tuple[str, timedelta | None]]] = {
    "day": ("24 hours", timedelta(days=1)),
    "week": ("7 days", timedelta(days=7)),
    "month": ("30 days", timedelta(days=30)),
    "quarter": ("90 days", timedelta(days=90)),
    "all": ("All", None),
}
PURPOSES: Final = (
    ("training", "Training"), ("selection", "Selection"), ("evaluation", "Evaluation"), ("received", "Received"),
)  # fmt: skip
DEFAULT_PERIOD: Final = "month"
BEGINNING: Final = datetime(2000, 1, 1, tzinfo=UTC)
AWAY: Final = "warehouse.away"
AWAY_SECONDS: Final = 15  # so long it is not asked again
INSTEAD: Final = "These figures are PostgreSQL's roll-ups"
NOT_THERE: Final = f"The warehouse does not answer. {INSTEAD}; filling goes on by itself."
FILLING: Final = f"The warehouse is being filled. {INSTEAD} until it has everything."


class FigureStore(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def moments(self) -> Mapping[str, str]: ...

    def execute(self, sql: str, parameters: dict[str, Any]) -> list[Row]: ...


@dataclass(frozen=True, slots=True)
class ShownChart:
    """A chart with its rows and the columns that these have. ``more``: how many rows were not asked for."""

    chart: DashboardChart
    columns: tuple[ChartColumn, ...]
    rows: list[Row]
    more: int = 0


@dataclass(frozen=True, slots=True)
class DashboardFigures:
    """``source``: "warehouse" or "rollups". ``behind_seconds``: how long the oldest row waits that it does not know."""

    dashboard: Dashboard
    asked: DashboardQuestion
    charts: list[ShownChart]
    source: str
    behind_seconds: float
    note: str = ""


def question(actor: Actor, *, period: str = "", agent: str = "", purpose: str = "") -> DashboardQuestion:
    """The question of a dashboard, checked.

    Raises:
        Missing: no such agent for this actor.
        Invalid: no such period or purpose.
    """
    organization = current_organization(actor)
    require(actor, "view", organization)
    period = period or DEFAULT_PERIOD
    if period not in PERIODS:
        raise Invalid(f"period is one of {', '.join(PERIODS)}.", fields={"period": "no such period"})
    if purpose and purpose not in dict(PURPOSES):
        names = ", ".join(name for name, _ in PURPOSES)
        raise Invalid(f"purpose is one of {names}.", fields={"purpose": "no such purpose"})
    span = PERIODS[period][1]
    now = timezone.now().replace(minute=0, second=0, microsecond=0)
    since = BEGINNING if span is None else now - span
    if span is not None and span > timedelta(days=1):
        since = since.astimezone(UTC).replace(hour=0)  # whole days
    chosen = agent_get(actor, agent).pk if agent else None
    return DashboardQuestion(organization.pk, since, hourly=period == "day", agent=chosen, purpose=purpose)


def dashboard_get(key: str) -> Dashboard:
    """Raises:
    Missing: there is none of that name."""
    if key not in DASHBOARDS:
        raise Missing("There is no such dashboard.")
    return DASHBOARDS[key]


def dashboard_figures(dashboard: Dashboard, asked: DashboardQuestion, *, most: int | None = None) -> DashboardFigures:
    """All charts, of one store: figures of two would not fit together. ``most``: rows of tables whose largest come
    first; all where it is None."""
    store, note = _store()
    if store is not None:
        try:
            charts = _charts(store, dashboard, asked, most)
            return DashboardFigures(dashboard, asked, charts, store.name, behind("warehouse"))
        except WarehouseError as error:
            log.warning("dashboards fall back on roll-ups: %s", error)
            if isinstance(error, WarehouseUnavailable):
                cache.set(AWAY, "1", AWAY_SECONDS)
            note = NOT_THERE
    store = RollupStore()
    charts = _charts(store, dashboard, asked, most)
    return DashboardFigures(dashboard, asked, charts, store.name, behind("rollups"), note)


def behind(sink: str) -> float:
    """Seconds since the oldest change that the sink has not received; 0 if it has received all."""
    oldest = RowChange.objects.filter(sink=sink).order_by("id").values_list("created_at", flat=True).first()
    return 0.0 if oldest is None else max(0.0, (timezone.now() - oldest).total_seconds())


def _store() -> tuple[FigureStore | None, str]:
    """The warehouse, or why it is not asked; "" where there is none."""
    store = store_configured()
    place = WarehouseStore.objects.first() if store is not None else None
    if store is None or place is None:
        return None, ""
    if RowChange.objects.filter(sink=ChangeSink.WAREHOUSE, id__lte=place.first).exists():
        return None, FILLING
    if cache.get(AWAY):
        return None, NOT_THERE
    return store, ""


def _charts(
    store: FigureStore, dashboard: Dashboard, asked: DashboardQuestion, most: int | None = None
) -> list[ShownChart]:
    """Charts that share a query share its answer."""
    queries = {id(chart.query): chart.query for chart in dashboard.charts}
    answers = {key: _rows(store, query, asked, most) for key, query in queries.items()}
    shown = []
    for chart in dashboard.charts:
        found, more = answers[id(chart.query)]
        rows = chart.made(found)
        shown.append(ShownChart(chart, columns_of(chart, rows), rows, more))
    return shown


def _rows(
    store: FigureStore, query: DashboardQuery, asked: DashboardQuestion, most: int | None
) -> tuple[list[Row], int]:
    """In an order of ours: ClickHouse orders ids another way than PostgreSQL. And how many more there are."""
    limit = most if query.first else None
    found = store.execute(query.sql(asked, store.moments, limit), asked.parameters)
    more = found[0]["groups"] - len(found) if found and limit is not None else 0
    return sorted(found, key=lambda row: [str(row[name]) for name in query.by]), more
