"""Rows between the table of trajectories and Parquet, and the partitions of the table."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import date
from typing import Any, Final

import pyarrow as pa
from django.db import connection, transaction

from agentcore_site.lib.database import copying, no_news
from experiences.trajectories.archive.archive_view import shadowing
from experiences.trajectories.archive.digests import DIGEST, Marked
from experiences.trajectories.archive.files import (
    COLUMNS,
    DELIMITER,
    JSON,
    PLACE,
    QUOTE,
    ArchiveWriter,
    RowsWritten,
    as_csv,
)
from experiences.trajectories.storage import TABLE, partition_of

NAME: Final = re.compile(rf"{TABLE}_(\d{{4}})_(\d{{2}})")
# A COPY is short: one that lasts is taken for that of a frozen worker.
AT_ONCE: Final = 20_000
SORTED_IN_MEMORY: Final = "SET LOCAL work_mem = '64MB'"  # 20,000 rows, which usually take half of it
LISTED: Final = ", ".join(COLUMNS)
AS_TEXT: Final = ", ".join(f"{name}::text AS {name}" if name in JSON else name for name in COLUMNS)
ORDER: Final = ", ".join(PLACE)


def months() -> list[date]:
    """The months that have a partition."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
            " WHERE i.inhparent = 'public.experiences_trajectory'::regclass ORDER BY 1"
        )
        found = [NAME.fullmatch(name) for (name,) in cursor.fetchall()]
    return [date(int(one[1]), int(one[2]), 1) for one in found if one]


def job_write(writer: ArchiveWriter, month: date, agent_id: uuid.UUID, job_id: uuid.UUID) -> Iterator[RowsWritten]:
    """Writes the job's rows of the month, in order; yields what was written after each part."""
    last: dict[str, Any] | None = None
    while True:
        after = f" AND ({ORDER}) > (%s, %s, %s, %s)" if last else ""
        found = (
            f"SELECT {LISTED}, ctid, xmin FROM public.{TABLE}"  # noqa: S608
            f" WHERE month = %s AND agent_id = %s AND job_id = %s{after} ORDER BY {ORDER} LIMIT {AT_ONCE}"
        )
        # OFFSET keeps the planner from putting the cast of JSON, most of the work, into each place that asks for it.
        select = (
            f"COPY (SELECT {LISTED}, {DIGEST}, experiences_row_version(id, ctid, xmin)"  # noqa: S608
            f" FROM (SELECT {AS_TEXT}, ctid, xmin FROM ({found}) found OFFSET 0) listed)"
            f" TO STDOUT (FORMAT csv, DELIMITER '{DELIMITER}', QUOTE '{QUOTE}')"
        )
        values = [month, agent_id, job_id, *(last or {}).values()]
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(SORTED_IN_MEMORY)
            with copying(select, values) as copy:
                written = writer.write(copy)
        if not written.rows:
            return
        yield written
        last = written.last


def rows_put(relation: str, tables: Iterable[pa.Table]) -> None:
    """Appends rows to a table that has the columns of the file."""
    for table in tables:
        if table.num_rows:
            names = ", ".join(table.schema.names)
            with copying(f"COPY {relation} ({names}) FROM STDIN (FORMAT csv)") as copy:
                copy.write(as_csv(table))


def rows_return(month: date, tables: Iterable[pa.Table]) -> None:
    """Puts rows back into their partition. Listeners to new rows (events, the warehouse) received them before; for the
    search of queries call ``queries_return``."""
    with transaction.atomic(), no_news():
        rows_put(partition_of(month), tables)


def queries_return(month: date, job_id: uuid.UUID) -> None:
    """Stores the queries of a job's rows again, which were dropped with its partition."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT experiences_query_fill(%s, %s)", [month, job_id])


def marks(month: date, jobs: Iterable[uuid.UUID] | None = None) -> dict[tuple[uuid.UUID, uuid.UUID], Marked]:
    """By agent and job: how many rows of a month, and their digest."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT agent_id, job_id, n, mark FROM experiences_trajectory_marks(%s, %s, %s)",
            [f"public.{TABLE}", None if jobs is None else list(jobs), month],
        )
        return {(agent, job): Marked(n, int(mark)) for agent, job, n, mark in cursor.fetchall()}


@contextmanager
def shadow() -> Iterator[str]:
    """A transaction in which every query of the table of trajectories asks an empty one of this session, whose name it
    yields: what is put there is listed, filtered and paged by the code that does it with rows of the database."""
    with transaction.atomic(), connection.cursor() as cursor, shadowing():
        cursor.execute(f"CREATE TEMPORARY TABLE {TABLE} (LIKE public.{TABLE} INCLUDING DEFAULTS) ON COMMIT DROP")
        yield f"pg_temp.{TABLE}"
        cursor.execute(f"DROP TABLE pg_temp.{TABLE}")
