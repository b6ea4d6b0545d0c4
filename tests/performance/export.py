"""I3: trajectories exported by a process of its own: rows a second in each format beside a bare COPY of the same rows,
and what the process takes in memory above idle. Idle is the process after it has exported a first batch of a few rows:
what the program itself takes (pyarrow alone 36 MB, statements, the thread that reads) is there before a large export
begins, and is no part of what the size of an export asks for.

``python -m tests.performance.export JOB FORMAT`` is that process, on the database of its environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentcore_site import env
from tests.performance.table import Figure, at_least, at_most

ROWS, STEPS = 10_000, 8
COPIES = 20  # of these rows, made by SQL: one job
EXPORTED = int(os.environ.get("EXPORT_ROWS", ROWS * COPIES))


def suite() -> list[Figure]:
    from django.db import connection, transaction

    from experiences.trajectories import storage
    from tests.factories import AgentFactory
    from tests.performance.archive import job_stored
    from tests.performance.storage import MONTH, emptied
    from tests.support.owner import as_owner
    from tests.support.rows import group

    agent = AgentFactory()
    with transaction.atomic():
        storage.partition_make(MONTH)
    emptied()
    played = [one for scenario in range(ROWS // 10) for one in group(0, scenario, 10).trajectories]
    for one in played:
        one.steps *= STEPS // 2
    job = job_stored(agent, MONTH, played).job_id
    multiplied(job, EXPORTED // len(played))
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO experiences_grouprecord (job_id, organization_id, iteration, scenario, query, has_signal,"
            " success, rewards, normalized_rewards, advantages, step_advantages)"
            " SELECT job_id, organization_id, iteration, scenario, '', true, array_agg(success), array_agg(reward),"
            " array_agg(outcome), array_agg(outcome),"
            " jsonb_agg(jsonb_build_array(0.25, -0.5, 0.75, 1, -1, 0.5, 0.25, 0.125))"
            " FROM experiences_trajectory WHERE month = %s AND job_id = %s GROUP BY 1, 2, 3, 4",
            [MONTH, job],
        )
    with as_owner(), connection.cursor() as cursor:  # others are refused with a warning
        cursor.execute("ANALYZE experiences_trajectory, experiences_grouprecord")
    rows = len(played) * (EXPORTED // len(played))
    found = {format: _measured(str(job), format) for format in ("copy", "jsonl", "parquet", "csv")}
    rate = {format: rows / one["seconds"] for format, one in found.items()}
    figures = []
    for format in ("jsonl", "parquet", "csv"):
        assert found[format]["rows"] == rows, found
        about = f"{rows:,} trajectories as {format}"
        if format == "jsonl":
            figures.append(at_least("I3", about, rate[format], 20_000, "rows/s", digits=0))
        ratio = rate["copy"] / rate[format]
        figures.append(at_most("I3", f"{about} ({rate[format]:,.0f} rows/s), to a bare COPY", ratio, 6, "x"))
        figures.append(at_most("I3", f"{about}: memory above idle", found[format]["mb"], 60, "MB", digits=0))
    return figures


def multiplied(job: uuid.UUID, copies: int = COPIES) -> None:
    """Makes so many of each row of a job, in iterations of their own."""
    from django.db import connection

    from experiences.trajectories import storage
    from tests.performance.storage import MONTH

    names = storage.COLUMNS
    picked = names.replace("id,", "gen_random_uuid(),", 1).replace(" iteration,", " iteration + 100 * n,")
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO experiences_trajectory ({names}) SELECT {picked} FROM experiences_trajectory,"
            " generate_series(1, %s) n WHERE month = %s AND job_id = %s",
            [copies - 1, MONTH, job],
        )


def _measured(job: str, format: str) -> dict[str, float]:
    from tests.support.workers import environment

    command = [sys.executable, "-m", "tests.performance.export", job, format]
    done = subprocess.run(command, env=environment(), cwd=env.ROOT, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main(job: str, format: str) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentcore_site.settings")
    import django

    django.setup()
    from django.db import connection

    from agentcore_site.lib import gc_freeze, row_scope
    from agentcore_site.lib.database import copying
    from experiences.models import TrajectoryRecord
    from experiences.trajectories.exports.formats import FORMATS, portions
    from experiences.trajectories.exports.selection import IN_JOB, Export
    from tests.performance.storage import MONTH

    row_scope.outside(row_scope.EVERYTHING)
    connection.ensure_connection()

    def copied() -> Iterator[tuple[int, int]]:
        with copying("COPY (SELECT * FROM experiences_trajectory WHERE job_id = %s) TO STDOUT", [job]) as copy:
            yield from ((1, len(data)) for data in copy)

    def exported(**only: Any) -> Iterator[tuple[int, int]]:
        writer = FORMATS[format].writer()
        yield 0, len(writer.head())
        for read, _ in portions(
            Export(TrajectoryRecord.objects.filter(job_id=job, month=MONTH, **only), IN_JOB), format
        ):
            data, n = writer.write(read)
            yield n, len(data)
        yield 0, len(writer.tail())

    if format != "copy":
        list(exported(iteration=0, scenario=0))
    gc_freeze.settle()  # as web processes and workers do
    Path("/proc/self/clear_refs").write_text("5")  # the highest mark begins again
    idle = _memory("VmRSS")
    began, rows, size = time.perf_counter(), 0, 0
    for n, length in copied() if format == "copy" else exported():
        rows, size = rows + n, size + length
    seconds = time.perf_counter() - began
    used = _memory("VmHWM") - idle
    print(json.dumps({"rows": rows, "bytes": size, "seconds": seconds, "mb": used}))


def _memory(name: str) -> float:
    """Megabytes, by the kernel's name."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1024


if __name__ == "__main__":
    main(*sys.argv[1:3])
