"""Size of the database, its growth, and the day on which the disk is full at that rate."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from datetime import date, timedelta

from django.conf import settings
from django.db import connection
from django.db.models import Min
from django.utils import timezone

from agentcore_site.lib.service_paths import services_folder
from agentcore_site.models import TableSize

HERE = ("127.0.0.1", "::1", "localhost")
WINDOW = timedelta(days=14)  # over which growth is measured


@dataclass(frozen=True)
class TableUsage:
    """A table (a partitioned one with all of its partitions): bytes with indexes, and bytes a day; None: not known."""

    name: str
    size: int
    growth: float | None


@dataclass(frozen=True)
class StorageUsage:
    """``free``: bytes on the disk of the data folder; None where that can't be asked. ``days``: until it is full."""

    tables: list[TableUsage]
    free: int | None
    days: float | None

    @property
    def size(self) -> int:
        return sum(table.size for table in self.tables)

    @property
    def growth(self) -> float | None:
        known = [table.growth for table in self.tables if table.growth is not None]
        return sum(known) if known else None


def sizes() -> dict[str, int]:
    """Bytes of each table with its indexes, partitions counted with the table that they are of."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT coalesce(parent.relname, c.relname), sum(pg_total_relation_size(c.oid))::bigint"
            " FROM pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid"
            " LEFT JOIN pg_class parent ON parent.oid = i.inhparent"
            " WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' GROUP BY 1"
        )
        return dict(cursor.fetchall())


def sizes_note(today: date | None = None) -> None:
    """Keeps today's sizes: the last reading of a day is kept."""
    day = today or timezone.now().date()
    TableSize.objects.bulk_create(
        [TableSize(day=day, name=name, size=size) for name, size in sizes().items()],
        update_conflicts=True,
        unique_fields=["day", "name"],
        update_fields=["size"],
    )


def storage_usage() -> StorageUsage:
    """As it is now; growth is since the first reading of the last two weeks that is at least a day old."""
    today = timezone.now().date()
    before = TableSize.objects.filter(day__gte=today - WINDOW, day__lt=today)
    first = before.aggregate(day=Min("day"))["day"]
    old = dict(before.filter(day=first).values_list("name", "size")) if first else {}
    tables = [
        TableUsage(name, size, (size - old.get(name, 0)) / (today - first).days if first else None)
        for name, size in sizes().items()
    ]
    tables.sort(key=lambda one: -one.size)
    found = StorageUsage(tables, _free(), None)
    rate = found.growth
    return found if not rate or rate <= 0 or found.free is None else StorageUsage(tables, found.free, found.free / rate)


def _free() -> int | None:
    """Of the disk that the embedded database is on; another server's disk is not known here."""
    if settings.DATABASES["default"]["HOST"] not in HERE:
        return None
    try:
        return shutil.disk_usage(services_folder(settings.DATA_DIR)).free
    except OSError:
        return None
