"""Re-encrypts stored rows under the active key, or decrypts them if there is none: some hundred in a transaction.

Rows are read and written under any version, so a job that dies, pauses or is cancelled leaves nothing to repair: the
next job skips the rows that are done.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any, Final

from django.db import connection

from agentcore_site.encryption.columns import JSON, EncryptedTable, Sealer, opened_stored, tables
from agentcore_site.encryption.services import COUNTED
from agentcore_site.jobs.events import event_add
from agentcore_site.jobs.kinds import Progressed
from agentcore_site.jobs.lease import Lease
from agentcore_site.jobs.models import Job
from agentcore_site.lib.database import no_news
from agentcore_site.lib.key_errors import Unopenable

AT_ONCE: Final = 500
MOVED: Final = "rows_moved"
DAMAGED: Final = "row_damaged"

Counts = dict[str, dict[int, int]]


def rows_by_version(organization_id: uuid.UUID) -> Counts:
    """Number of rows by table and version of the key (0: plain), read from all rows."""
    found: Counts = {}
    with connection.cursor() as cursor:
        for _, table in tables.items():
            newest = ", ".join(f"encryption_version({column})" for column in table.columns)
            cursor.execute(
                f"SELECT greatest({newest}), count(*) FROM {table.name}"  # noqa: S608  (names are ours)
                " WHERE organization_id = %s GROUP BY 1",
                [organization_id],
            )
            found[table.name] = dict(cursor.fetchall())
    return found


def reencryption_slice(job: Job, lease: Lease) -> Progressed:
    """Batches from the end of the last slice; at the end rows are counted."""
    marks = job.events.filter(type__in=(COUNTED, MOVED)).order_by("seq")
    first = marks.first() or _counted(job, lease)
    last = marks.last()
    done = last.data.get("done", 0) if last is not None else 0
    total = max(1, sum(sum(versions.values()) for versions in first.data["rows"].values()))
    at, after = (last.data["table"], last.data["after"]) if last is not None and last.type == MOVED else ("", None)
    for name, table in sorted(tables.items()):
        if name < at:
            continue
        place = after if name == at else None
        while True:
            lease.check()
            with lease.fenced(progress=min(done / total, 0.99)):
                seen, place = _batch(table, job, place)
            done += seen
            if seen < AT_ONCE:
                break
            if lease.slice_over:
                with lease.fenced():
                    event_add(job, MOVED, data={"table": name, "after": place, "done": done})
                return Progressed(finished=False)
    _counted(job, lease)
    return Progressed(finished=True)


def _counted(job: Job, lease: Lease) -> Any:
    rows = rows_by_version(job.organization_id)
    with lease.fenced():
        return event_add(job, COUNTED, message="Rows were counted by the key they are under.", data={"rows": rows})


def _batch(table: EncryptedTable, job: Job, after: list[str] | None) -> tuple[int, list[str] | None]:
    """Re-encrypts the rows of a batch that need it, in the caller's transaction. Returns how many rows it checked, and
    the key of the last one. A row that can't be decrypted stays unchanged, and an event names it."""
    sealer = Sealer(job.organization_id)
    wanted = sealer.key.version if sealer.key else 0
    n = len(table.key)
    changed: list[tuple[Any, ...]] = []
    rows = _read(table, job.organization_id, after, wanted)
    for row in rows:
        key, stored = row[:n], row[n:]
        if any(stored):  # columns of a correct row are not read
            try:
                changed.append((*key, *_moved(table, sealer, key[-1], stored)))
            except Unopenable as error:
                event_add(job, DAMAGED, level="error", message=error.message)
    if changed:
        _write(table, changed)
    return len(rows), rows[-1][:n] if rows else None


def _read(table: EncryptedTable, organization_id: uuid.UUID, after: list[str] | None, wanted: int) -> list[list[Any]]:
    """Key and columns of the next rows, as texts. Columns that are correct already are null."""
    key = ", ".join(table.key)
    texts = ", ".join(f"CASE WHEN encryption_version({one}) <> %s THEN {one}::text END" for one in table.columns)
    further = f" AND ({key}) > ({', '.join('%s::' + kind for kind in table.key.values())})" if after else ""
    keys = ", ".join(f"{one}::text" for one in table.key)
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {keys}, {texts} FROM {table.name}"  # noqa: S608  (names are ours)
            f" WHERE organization_id = %s{further} ORDER BY {key} LIMIT %s",
            [*[wanted] * len(table.columns), organization_id, *(after or ()), AT_ONCE],
        )
        return [list(row) for row in cursor.fetchall()]


def _moved(table: EncryptedTable, sealer: Sealer, row_id: str, stored: list[str | None]) -> Iterator[str | None]:
    """The columns as they should be stored; JSON as text."""
    for (column, kind), text in zip(table.columns.items(), stored, strict=True):
        if text is None:
            yield None
            continue
        plaintext = opened_stored(table, column, sealer.organization_id, row_id, text)
        if kind == JSON:
            yield sealer.json(table.name, column, row_id, plaintext.encode()).decode()
        else:
            yield sealer.text(table.name, column, row_id, plaintext)


def _write(table: EncryptedTable, rows: list[tuple[Any, ...]]) -> None:
    """Writes without notifying the table's listeners (events, the warehouse): the content is unchanged."""
    types = [*table.key.values(), *("text" for _ in table.columns)]
    names = [*table.key, *table.columns]
    lists = ", ".join(f"%s::{kind}[]" for kind in types)
    sets = ", ".join(f"{one} = coalesce(moved.{one}::{kind}, t.{one})" for one, kind in table.columns.items())
    same = " AND ".join(f"t.{one} = moved.{one}" for one in table.key)
    with no_news(), connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE {table.name} t SET {sets} FROM unnest({lists}) AS moved({', '.join(names)}) WHERE {same}",  # noqa: S608
            [list(column) for column in zip(*rows, strict=True)],
        )
