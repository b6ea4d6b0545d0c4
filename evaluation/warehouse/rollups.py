"""Figures by the hour in PostgreSQL: counted again for the hours of which a row was written, and read by the dashboards
where no warehouse is there."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

from django.db import connection, transaction

from evaluation.warehouse.measures import PG_HOUR, PG_TRAININGS
from evaluation.warehouse.models import ChangeSink, HourlyMeasure, RowChange
from experiences.trajectories.archive.reading import hour_rows

NAMED: Final = re.compile(r"\{(\w+):[^{}]*\}")  # a parameter as ClickHouse writes it: {organization:UUID}


class RollupStore:
    """The queries of the dashboards on PostgreSQL."""

    name: Final = "rollups"
    # Spans begin with an hour, so that both say the same; this one is not made of each row.
    moments: Final[Mapping[str, str]] = MappingProxyType({"warehouse_training": "created_at"})

    def execute(self, sql: str, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
        with connection.cursor() as cursor:
            bound = NAMED.sub(r"%(\1)s", sql)
            cursor.execute(f"WITH warehouse_training AS ({PG_TRAININGS}) {bound}", parameters)
            names = [column.name for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def roll_up() -> int:
    """Recounts the hours with pending changes. Returns the number of hours."""
    notes = RowChange.objects.filter(sink=ChangeSink.ROLLUPS)
    hours = list(notes.order_by().values_list("organization_id", "hour").distinct())
    for organization_id, hour in hours:
        hour_count(organization_id, hour)
    return len(hours)


def hour_count(organization_id: uuid.UUID, hour: datetime) -> None:
    """Changes that are written meanwhile have rows of their own, which stay."""
    given: dict[str, Any] = {"organization": organization_id, "hour": hour}
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"{organization_id} {hour}"])
        notes = RowChange.objects.filter(sink=ChangeSink.ROLLUPS, organization_id=organization_id, hour=hour)
        counted = list(notes.values_list("id", flat=True))
        HourlyMeasure.objects.filter(organization_id=organization_id, hour=hour)._raw_delete("default")
        with hour_rows(organization_id, hour, hour + timedelta(hours=1)):
            cursor.execute(PG_HOUR, given)
        RowChange.objects.filter(id__in=counted)._raw_delete("default")
