"""S6: a month of trajectories archived, one job brought back, bytes in the archive."""

from __future__ import annotations

import time

from django.db import transaction

from agentcore_site.ids import uuid7
from experiences.trajectories import storage
from experiences.trajectories.archive import ageing
from experiences.trajectories.archive.restoring import archived_jobs, job_restore
from tests.factories import AgentFactory
from tests.performance.storage import MONTH, emptied, trajectories
from tests.performance.table import Figure, at_least, at_most

JOBS = 10  # of ROWS trajectories each


def months() -> list[Figure]:
    agent = AgentFactory()
    with transaction.atomic():
        storage.partition_make(MONTH)
    emptied()
    rows = trajectories()
    jobs = [uuid7() for _ in range(JOBS)]
    for job in jobs:
        whose = storage.TrajectoryScope(job, agent.organization_id, agent.pk, MONTH)
        with transaction.atomic():
            storage.trajectories_write(whose, rows)
    began = time.perf_counter()
    made = [ageing.archive_write(ageing.Unhindered(), one) for one in ageing.portions(MONTH)]
    written = time.perf_counter()
    assert ageing.month_drop(MONTH)
    dropped = time.perf_counter()
    [job] = archived_jobs(job_id=jobs[3])
    again = time.perf_counter()
    assert job_restore(job) == len(rows)
    restored = time.perf_counter() - again
    n = len(rows) * JOBS
    size = sum(one.size for one in made) * 10_000 / n / 2**20
    print(written - began, dropped - written)
    return [
        at_least("S6", f"archive of a month of {n:,} trajectories, written, read back and dropped",
                 n / (dropped - began), 20_000, "rows/s", digits=0),
        at_most("S6", f"one job of {len(rows):,} trajectories brought back", restored, 5, "s", digits=2),
        at_most("S6", "10,000 trajectories in the archive", size, 20, "MB", digits=1),
    ]  # fmt: skip
