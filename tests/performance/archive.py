"""S6: a month of trajectories archived, one job brought back, bytes in the archive; how a database grows that ages."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta
from unittest import mock

from django.db import connection, transaction
from django.db.models import Sum
from django.utils import timezone

from agentcore_site.ids import uuid7
from experiences.models import Agent, ArchiveState, TrajectoryArchive
from experiences.rollouts.types import Trajectory
from experiences.trajectories import storage
from experiences.trajectories.archive import archive_lifecycle, rows
from experiences.trajectories.archive.restoring import archived_jobs, job_restore
from tests.factories import AgentFactory
from tests.performance.storage import MONTH, emptied, trajectories
from tests.performance.table import Figure, at_least, at_most
from tests.support.owner import as_owner

JOBS = 30  # of ROWS trajectories each
DAYS = 240
OF_A_DAY = 250  # trajectories, in one job: 100 jobs of 10,000 are 4,000 times as many
LATER = 90


def job_stored(agent: Agent, month: date, played: list[Trajectory]) -> storage.TrajectoryScope:
    whose = storage.TrajectoryScope(uuid7(), agent.organization_id, agent.pk, month)
    with transaction.atomic():
        storage.trajectories_write(whose, played)
    return whose


def months() -> list[Figure]:
    agent = AgentFactory()
    with transaction.atomic():
        storage.partition_make(MONTH)
    emptied()
    played = trajectories()
    jobs = [job_stored(agent, MONTH, played).job_id for _ in range(JOBS)]
    # A month that ages was vacuumed long ago: autovacuum comes within a minute of so many new rows. Who reads a row for
    # the first time after it was written marks it as seen by all, and writes its page: 6 s of 300,000.
    with as_owner(), connection.cursor() as cursor:
        cursor.execute("VACUUM (ANALYZE) experiences_trajectory_2020_01")
    began = time.perf_counter()
    made = list(archive_lifecycle.archives_write(archive_lifecycle.Unhindered(), archive_lifecycle.portions(MONTH)))
    assert archive_lifecycle.month_drop(MONTH)
    took = time.perf_counter() - began
    [job] = archived_jobs(job_id=jobs[3])
    began = time.perf_counter()
    assert job_restore(job) == len(played)
    restored = time.perf_counter() - began
    n = len(played) * JOBS
    size = sum(one.size for one in made) * 10_000 / n / 2**20
    return [
        at_least("S6", f"archive of {n:,} trajectories, read back and dropped", n / took, 20_000, "rows/s", digits=0),
        at_most("S6", f"one job of {len(played):,} trajectories brought back", restored, 5, "s", digits=2),
        at_most("S6", "10,000 trajectories in the archive", size, 20, "MB", digits=1),
    ]


def growth() -> list[Figure]:
    """240 days of one small job a day, aged each day by the shipped settings."""
    agent = AgentFactory()
    played = trajectories()[:OF_A_DAY]
    sizes: dict[int, tuple[int, int]] = {}  # by day: rows in the database, bytes of the archives
    for day in range(DAYS):
        now = datetime(2021, 1, 1, tzinfo=UTC) + timedelta(days=day)
        month = now.date().replace(day=1)
        storage.partition_make(month)
        job_stored(agent, month, played)
        with mock.patch.object(timezone, "now", lambda now=now: now):
            for due in archive_lifecycle.months_due():
                list(archive_lifecycle.archives_write(archive_lifecycle.Unhindered(), archive_lifecycle.portions(due)))
                assert archive_lifecycle.month_drop(due)
            for one in archive_lifecycle.expired():
                archive_lifecycle.archive_delete(archive_lifecycle.Unhindered(), one)
        kept = TrajectoryArchive.objects.filter(agent=agent, state=ArchiveState.ARCHIVED).aggregate(n=Sum("size"))["n"]
        sizes[day] = hot(agent), kept or 0
    most = max(n for n, _ in sizes.values()) / OF_A_DAY
    then, end = sizes[LATER], sizes[DAYS - 1]
    return [
        at_most("S6", f"days of trajectories in the database, at most, in {DAYS} days", most, 62, "days", digits=0),
        at_most("S6", f"of them after {LATER} days", then[0] / OF_A_DAY, 62, "days", digits=0),
        at_most("S6", f"archives after {DAYS} days, as a multiple of those after {LATER + 60}",
                end[1] / max(sizes[LATER + 60][1], 1), 2, "x", digits=2),
    ]  # fmt: skip


def hot(agent: Agent) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {rows.TABLE} WHERE agent_id = %s", [agent.pk])
        return int(cursor.fetchone()[0])
