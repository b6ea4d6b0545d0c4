"""Fills the warehouse with the rows that were noted: what is sent twice is stored once, by its key and batch.

A batch reads the rows as they are now, sends them, and takes their notes away in the transaction that numbered it. One
that dies in between is sent again under a higher number. The row of the warehouse is locked meanwhile: with a lease, a
filler that was stopped and woken could send a row after another one deleted it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

import orjson
from django.conf import settings
from django.db import connection, transaction
from django.db.models import Max, Q
from django.utils import timezone

from agentcore_site.jobs.models import ACTIVE, Job
from evaluation.warehouse import metrics
from evaluation.warehouse.clickhouse.client import ClickHouseStore, store_at
from evaluation.warehouse.clickhouse.schema import schema_apply
from evaluation.warehouse.measures import PG_COMPONENTS, PG_TRAININGS
from evaluation.warehouse.models import ChangeKind, ChangeSink, RowChange, WarehouseStore

KEYS: Final = 2_000  # rows of a batch
SETTLING: Final = timedelta(hours=1)  # so long after a training's end its cost may still change
TRAINING_KINDS: Final = ("training", "external_training")

ROWS: Final = f"""
SELECT t.id, json_build_object(
    'organization_id', t.organization_id,
    'hour', to_char(date_trunc('hour', t.created_at AT TIME ZONE 'UTC'), %(format)s),
    'id', t.id, 'version', %(batch)s::bigint, 'agent_id', t.agent_id, 'job_id', t.job_id, 'purpose', t.purpose,
    'arm', t.arm, 'line', t.line, 'iteration', t.iteration, 'scenario', t.scenario, 'rollout', t.rollout,
    'query', t.query, 'success', t.success, 'outcome', t.outcome, 'reward', t.reward, 'n_steps', t.n_steps,
    'truncated', t.truncated, 'error', t.error, 'tokens', t.tokens, 'cost_micros', t.cost_micros,
    'duration_ms', t.duration_ms, 'policy_version', t.policy_version, 'model', t.model,
    'components', (SELECT coalesce(json_object_agg(c.key, c.value), '{{}}') FROM ({PG_COMPONENTS}) c
        WHERE c.value IS NOT NULL),
    -- What is encrypted does not leave: the warehouse has its own disk.
    'steps', CASE WHEN encryption_version(t.steps) = 0 THEN t.steps::text ELSE '[]' END,
    'created_at', to_char(t.created_at AT TIME ZONE 'UTC', %(format)s || '.US')
)::text
FROM experiences_trajectory t WHERE t.month = ANY(%(months)s) AND t.id = ANY(%(ids)s)
"""  # noqa: S608  (our own words)
FORMAT: Final = "YYYY-MM-DD HH24:MI:SS"


def store_configured() -> ClickHouseStore | None:
    return store_at(settings.CLICKHOUSE_URL) if settings.CLICKHOUSE_URL else None


def warehouse_setup(store: ClickHouseStore, *, again: bool = False) -> bool:
    """Makes the tables, begins to note what changes, and notes all rows that are there: the first time, and ``again``
    where the warehouse lost them. Returns whether all were noted.

    Raises:
        WarehouseUnavailable, WarehouseRefused.
    """
    schema_apply(store)
    with transaction.atomic():
        _, made = WarehouseStore.objects.get_or_create(name=ChangeSink.WAREHOUSE)
    if not (made or again):
        return False
    with transaction.atomic(), connection.cursor() as cursor:
        # Who writes from here on notes it. Who was at it before is waited for, so that those rows are seen below.
        cursor.execute("LOCK TABLE experiences_trajectory, jobs_job IN SHARE MODE")
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO warehouse_rowchange (sink, kind, organization_id, hour, month, keys)"
            " SELECT 'warehouse', 'trajectory', organization_id, hour, month, array_agg(id) FROM ("
            "   SELECT organization_id, date_trunc('hour', created_at, 'UTC') AS hour, month, id, row_number() OVER ("
            "     PARTITION BY organization_id, date_trunc('hour', created_at, 'UTC'), month) / %s AS part"
            "   FROM experiences_trajectory) t GROUP BY organization_id, hour, month, part",
            [KEYS],
        )
        cursor.execute(
            "INSERT INTO warehouse_rowchange (sink, kind, organization_id, keys)"
            " SELECT 'warehouse', 'training', organization_id, array_agg(id) FROM jobs_job WHERE kind = ANY(%s)"
            " GROUP BY organization_id",
            [list(TRAINING_KINDS)],
        )
        first = RowChange.objects.filter(sink=ChangeSink.WAREHOUSE).aggregate(last=Max("id"))["last"] or 0
        WarehouseStore.objects.update(first=first, filled_at=None)
    return True


def warehouse_forget() -> None:
    """Nothing is noted for the warehouse any more; what it holds stays there."""
    with transaction.atomic():
        WarehouseStore.objects.all().delete()
        RowChange.objects.filter(sink=ChangeSink.WAREHOUSE)._raw_delete("default")


def fill(store: ClickHouseStore, *, seconds: float = 20.0) -> int:
    """Sends batches until nothing waits, or the time is over. Returns how many rows.

    Raises:
        WarehouseUnavailable, WarehouseRefused.
    """
    until, sent = time.monotonic() + seconds, 0
    while time.monotonic() < until and (rows := batch_fill(store)):
        sent += rows
    return sent


@transaction.atomic
def batch_fill(store: ClickHouseStore) -> int:
    """Returns how many rows were stored or deleted; 0 where nothing waits, or another is at it."""
    place = WarehouseStore.objects.select_for_update(no_key=True, skip_locked=True).first()
    if place is None:
        return 0
    place.batch += 1
    changes = _taken()
    trajectories = [change for change in changes if change.kind == ChangeKind.TRAJECTORY]
    done = trajectories_send(store, place.batch, trajectories)
    done += _trainings_send(store, place, [change for change in changes if change.kind == ChangeKind.TRAINING])
    RowChange.objects.filter(id__in=[change.id for change in changes])._raw_delete("default")
    if not changes:
        place.filled_at = timezone.now()
    place.save()
    metrics.stored.inc(done)
    return done if changes else 0


def _taken() -> list[RowChange]:
    """The oldest notes, of some ``KEYS`` rows together."""
    found: list[RowChange] = []
    size = 0
    for change in RowChange.objects.filter(sink=ChangeSink.WAREHOUSE).order_by("id")[:KEYS]:
        if found and size + len(change.keys) > KEYS:
            break
        found.append(change)
        size += len(change.keys)
    return found


def trajectories_send(store: ClickHouseStore, batch: int, changes: Sequence[RowChange]) -> int:
    """Rows that are there are sent, those that are not are deleted."""
    hours = {key: (change.organization_id, change.hour) for change in changes for key in change.keys}
    months = list({change.month for change in changes})
    seen: set[uuid.UUID] = set()
    every = list(hours)
    for start in range(0, len(every), KEYS):
        with connection.cursor() as cursor:
            ids = every[start : start + KEYS]
            cursor.execute(ROWS, {"batch": batch, "months": months, "ids": ids, "format": FORMAT})
            rows = cursor.fetchall()
        store.insert("trajectories", (line for _, line in rows))
        seen |= {id for id, _ in rows}
    gone = [
        _line(organization_id=organization_id, hour=hour, id=key, version=batch)
        for key, (organization_id, hour) in hours.items()
        if key not in seen
    ]
    if gone:
        store.insert("trajectories", gone)
        deleted_purge(store, batch)
    return len(hours)


def deleted_purge(store: ClickHouseStore, batch: int) -> None:
    """Takes from the disk what this batch deleted: in all its versions, and not only out of sight."""
    store.command(
        "ALTER TABLE trajectories DELETE WHERE is_deleted = 0 AND (organization_id, id) IN (SELECT organization_id, id"
        " FROM trajectories WHERE is_deleted = 1 AND version = {batch:UInt64}) SETTINGS mutations_sync = 1",
        {"batch": batch},
    )


def _trainings_send(store: ClickHouseStore, place: WarehouseStore, changes: Iterable[RowChange]) -> int:
    """Jobs with a new status, and the figures of jobs that are active or ended recently."""
    noted = {key: change.organization_id for change in changes for key in change.keys}
    since = (place.filled_at or timezone.now()) - SETTLING
    moving = Job.objects.filter(Q(status__in=ACTIVE) | Q(finished_at__gte=since), kind__in=TRAINING_KINDS)
    ids = noted | dict(moving.values_list("id", "organization_id"))
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT job_id, (to_jsonb(x) - 'created_at' || jsonb_build_object('version', %s::bigint,"  # noqa: S608  (our own words)
            f" 'hour', to_char(hour AT TIME ZONE 'UTC', %s)))::text FROM ({PG_TRAININGS}) x WHERE job_id = ANY(%s)",
            [place.batch, FORMAT, list(ids)],
        )
        rows = cursor.fetchall()
    there = {id for id, _ in rows}
    gone = (_line(organization_id=of, job_id=id, version=place.batch) for id, of in ids.items() if id not in there)
    store.insert("trainings", [*(line for _, line in rows), *gone])
    return len(noted)


def _line(**columns: object) -> str:
    hour = columns.get("hour")
    if isinstance(hour, datetime):
        columns["hour"] = f"{hour:%Y-%m-%d %H:%M:%S}"
    return orjson.dumps({**columns, "is_deleted": 1}).decode()
