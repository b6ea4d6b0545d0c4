"""Life cycle of archived months: written as Parquet, read back, dropped, retained by rule, deleted.

Each step stores the input of the next one, so that a process may die anywhere. An archive has a row once its file was
read back. The partition is dropped in the transaction that checks that archives hold its rows; digests find rows
written in between. A file without a row is deleted a day later. The steps
are in one module because each relies on the input that the step before has stored.
"""

from __future__ import annotations

import hashlib
import logging
import tempfile
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from threading import Event
from typing import IO, Any, Final, Protocol

import orjson
from django.conf import settings
from django.db import OperationalError, connection, transaction
from django.utils import timezone

from agentcore_site.audit.services import record
from agentcore_site.jobs.models import ACTIVE, Job
from agentcore_site.lib.errors import Conflict
from agentcore_site.lib.months import month_after
from agentcore_site.lib.object_storage import (
    object_delete,
    object_open,
    object_save,
    object_save_file,
    objects_unnamed_delete,
)
from agentcore_site.lib.parallel_map import parallel_map
from agentcore_site.lib.row_scope import everything
from experiences.models import Annotation, ArchivedJob, ArchiveRule, ArchiveState, GroupRecord, TrajectoryArchive
from experiences.models.archives import folder_of
from experiences.trajectories.archive.digests import NONE, file_marks
from experiences.trajectories.archive.files import COLUMNS, ArchiveWriter, RowsWritten
from experiences.trajectories.archive.rows import job_write, months
from experiences.trajectories.archive.services import KIND
from experiences.trajectories.storage import partition_ensure

log = logging.getLogger(__name__)

FILE_ROWS: Final = 50_000  # a new file begins after the job that reaches this
AT_WORK: Final = 2  # files at once: each has row groups of at most 32 MB of text in memory
FORMAT: Final = 1


class ArchiveUnsound(Conflict):
    """The rows that were read back differ from the written ones."""

    title = "Archive unsound"


class ArchiveTurn(Protocol):
    """The worker's right to go on: a job's lease, or a command, which no person stops."""

    @property
    def slice_over(self) -> bool: ...

    def check(self) -> None: ...

    def fenced(self) -> AbstractContextManager[None]: ...


class Unhindered:
    """A command's turn."""

    slice_over: Final = False

    def check(self) -> None:
        """Goes on."""

    def fenced(self) -> AbstractContextManager[None]:
        return transaction.atomic()


@dataclass(frozen=True)
class Portion:
    """Content of one file: jobs of one agent and month."""

    organization_id: uuid.UUID
    agent_id: uuid.UUID
    month: date
    jobs: tuple[uuid.UUID, ...]
    rows: int


@everything()
def months_due(today: date | None = None) -> list[date]:
    """Months that ended so many days ago, of which no job is active, and none was brought back since."""
    days = settings.TRAJECTORY_HOT_DAYS
    if not days:
        return []
    before = (today or timezone.now().date()) - timedelta(days=days)
    back = timezone.now() - timedelta(days=days)
    return [
        month
        for month in months()
        if month_after(month) <= before
        and not Job.objects.filter(
            status__in=ACTIVE, created_at__date__gte=month, created_at__date__lt=month_after(month)
        )
        .exclude(kind=KIND)
        .exists()
        and not ArchivedJob.objects.filter(archive__month=month, restored_at__gt=back).exists()
    ]


def portions(month: date, organization_id: uuid.UUID | None = None) -> list[Portion]:
    """Parts of a month without an archive, divided into files."""
    with connection.cursor() as cursor:
        cursor.execute(
            # Counted in the index alone; a job is of one agent.
            "WITH hot AS (SELECT job_id, count(*) n FROM experiences_trajectory WHERE month = %(month)s GROUP BY 1)"
            " SELECT whose.organization_id, whose.agent_id, hot.job_id, hot.n FROM hot, LATERAL ("
            "   SELECT t.organization_id, t.agent_id FROM experiences_trajectory t"
            "   WHERE t.month = %(month)s AND t.job_id = hot.job_id LIMIT 1) whose"
            " WHERE (%(organization)s::uuid IS NULL OR whose.organization_id = %(organization)s) AND NOT EXISTS ("
            "   SELECT FROM experiences_archivedjob j JOIN experiences_trajectoryarchive a ON a.id = j.archive_id"
            "   WHERE a.month = %(month)s AND a.agent_id = whose.agent_id AND j.job_id = hot.job_id"
            "     AND (a.state = 'written' OR a.state = 'archived' AND j.restored_at IS NOT NULL))"
            " ORDER BY 1, 2, 3",
            {"month": month, "organization": organization_id},
        )
        found = cursor.fetchall()
    return list(_cut(month, found))


def _cut(month: date, jobs: list[tuple[uuid.UUID, uuid.UUID, uuid.UUID, int]]) -> Iterator[Portion]:
    waiting: list[tuple[uuid.UUID, int]] = []
    for place, (organization, agent, job, rows) in enumerate(jobs):
        waiting.append((job, rows))
        total = sum(n for _, n in waiting)
        last = place + 1 == len(jobs) or jobs[place + 1][:2] != (organization, agent)
        if last or total >= FILE_ROWS:
            yield Portion(organization, agent, month, tuple(job for job, _ in waiting), total)
            waiting = []


def archives_write(turn: ArchiveTurn, portions: Sequence[Portion]) -> Generator[TrajectoryArchive, None, None]:
    """Writes a file for each portion, reads it back from where it is stored, and only then says that there is one. Two
    are under way at once: PostgreSQL makes text of rows on one processor a session. None is begun that would be done
    after the turn's slice.

    Raises:
        ArchiveUnsound: what was read back is something else.
        ObjectsUnavailable: the storage can't be reached.
    """
    left = Event()

    def check() -> None:
        if left.is_set():  # what is written is not read any more
            raise CancelledError
        turn.check()

    def proven(portion: Portion, path: Path) -> tuple[FileWritten, list[ArchivedJob]]:
        file = _portion_write(portion, path, check)
        return file, file_prove(file, check)

    def works(folder: Path) -> Iterator[Callable[[], tuple[FileWritten, list[ArchivedJob]]]]:
        for place, portion in enumerate(portions):
            if place and turn.slice_over:
                return
            yield partial(proven, portion, folder / f"{place}.parquet")

    # What a thread still writes there after the caller has left goes with the folder.
    with (
        tempfile.TemporaryDirectory(prefix="archive-", ignore_cleanup_errors=True) as folder,
        closing(parallel_map(works(Path(folder)), AT_WORK)) as files,
    ):
        try:
            for file, jobs in files:
                yield _archive_note(turn, file, jobs)
        finally:
            left.set()


def _portion_write(portion: Portion, path: Path, check: Callable[[], None]) -> FileWritten:
    def rows(writer: ArchiveWriter) -> Iterator[tuple[uuid.UUID, RowsWritten]]:
        for job in portion.jobs:
            for part in job_write(writer, portion.month, portion.agent_id, job):
                check()
                yield job, part

    made = TrajectoryArchive(organization_id=portion.organization_id, agent_id=portion.agent_id, month=portion.month)
    return file_write(made, path, rows)


def _archive_note(turn: ArchiveTurn, file: FileWritten, jobs: list[ArchivedJob]) -> TrajectoryArchive:
    made = file.archive
    with turn.fenced(), connection.cursor() as cursor:
        # Of two that archive the same, the second finds the first one's.
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"archive {made.agent_id}"])
        there = ArchivedJob.objects.filter(
            archive__month=made.month, archive__agent=made.agent_id, archive__state=ArchiveState.WRITTEN
        )
        if not there.filter(job_id__in=file.jobs).exists():
            made.save(force_insert=True)
            ArchivedJob.objects.bulk_create(jobs)
    return made


@dataclass(frozen=True)
class FileWritten:
    """A file on this machine that is stored nowhere yet, what its row says of it, and what it says of jobs."""

    archive: TrajectoryArchive
    path: Path
    jobs: dict[uuid.UUID, ArchivedJob]


def file_write(
    archive: TrajectoryArchive, path: Path, rows: Callable[[ArchiveWriter], Iterator[tuple[uuid.UUID, RowsWritten]]]
) -> FileWritten:
    """Writes the file of an archive. ``rows`` writes, and says of which job how many, as they come. Sets what the
    archive says of its file."""
    jobs: dict[uuid.UUID, ArchivedJob] = {}
    whole: dict[uuid.UUID, RowsWritten] = {}
    with closing(ArchiveWriter(path)) as writer:
        for job_id, part in rows(writer):
            whole[job_id] = whole.get(job_id, RowsWritten(0, 0, 0)).plus(part)
            one = jobs.setdefault(
                job_id,
                ArchivedJob(organization_id=archive.organization_id, archive=archive, job_id=job_id, first_group=0),
            )
            known = whole[job_id]
            one.rows, one.versions = known.rows, known.versions
            if known.mark is not None:
                one.mark = known.mark
            one.first_group, one.groups = _groups(jobs, job_id, writer.groups)
    with path.open("rb") as data:
        archive.sha256, archive.size = _sha256(data), path.stat().st_size
    archive.rows = sum(job.rows for job in jobs.values())
    if writer.first_at and writer.last_at:
        archive.first_at, archive.last_at = writer.first_at, writer.last_at
    return FileWritten(archive, path, jobs)


def file_prove(file: FileWritten, check: Callable[[], None]) -> list[ArchivedJob]:
    """Stores a file with its manifest, reads it back, and deletes it here. Returns what is known of its jobs; neither
    they nor the archive are saved.

    Raises:
        ArchiveUnsound, ObjectsUnavailable: there is no file that can be relied on.
    """
    archive = file.archive
    object_save_file(archive.path, file.path)
    file.path.unlink()
    with object_open(archive.path) as stored:
        if _sha256(stored) != archive.sha256:
            raise ArchiveUnsound(f"{archive.path} does not read back as it was written.")
        stored.seek(0)
        found = file_marks(stored, check)
    for job_id, one in file.jobs.items():
        back = found.pop((archive.agent_id, job_id), NONE)
        if back.rows != one.rows or one.mark not in (None, back.mark):
            raise ArchiveUnsound(f"{archive.path} holds other rows of job {job_id} than were written.")
        one.mark = back.mark
    if found:
        raise ArchiveUnsound(f"{archive.path} holds jobs that were not written.")
    manifest_store(archive, list(file.jobs.values()))
    return list(file.jobs.values())


def _groups(written: dict[uuid.UUID, ArchivedJob], job_id: uuid.UUID, groups: int) -> tuple[int, int]:
    """First row group and number of row groups of the job that is being written: the last one."""
    first = sum(one.groups or 0 for name, one in written.items() if name != job_id)
    return first, groups - first


def manifest_store(archive: TrajectoryArchive, jobs: list[ArchivedJob]) -> None:
    """Writes the manifest of the file: a reader can understand and check the file without this database."""
    manifest = {
        "format": FORMAT,
        "organization_id": archive.organization_id,
        "agent_id": archive.agent_id,
        "month": archive.month,
        "rows": archive.rows,
        "bytes": archive.size,
        "sha256": archive.sha256,
        "first_at": archive.first_at,
        "last_at": archive.last_at,
        "written_at": archive.written_at,
        "columns": COLUMNS,
        "jobs": [
            {"job_id": job.job_id, "rows": job.rows, "first_row_group": job.first_group, "row_groups": job.groups,
             "mark": str(job.mark)}
            for job in jobs
        ],
    }  # fmt: skip
    object_delete(archive.manifest)
    object_save(archive.manifest, orjson.dumps(manifest, option=orjson.OPT_INDENT_2))


def month_drop(month: date) -> bool:
    """Drops the partition if archives hold all its current rows. False: not now; archives that lack rows were given up,
    so that the next archiving writes them again."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT agent_id, job_id FROM experiences_trajectory_partition_drop(%s)", [month])
            missing = cursor.fetchall()
            if not missing:
                _dropped(month)
                return True
    except OperationalError as error:  # a reader or writer is at it: the lock is asked for again another time
        log.warning("%s can't be dropped now: %s", month, error)
        return False
    with transaction.atomic():
        for agent_id, job_id in missing:
            stale = ArchivedJob.objects.filter(archive__month=month, archive__agent=agent_id, job_id=job_id)
            stale.filter(archive__state=ArchiveState.ARCHIVED, restored_at__isnull=False).delete()
            for archive in TrajectoryArchive.objects.filter(
                id__in=stale.filter(archive__state=ArchiveState.WRITTEN).values("archive")
            ):
                archive_forget(archive)
    return False


def _dropped(month: date) -> None:
    done = TrajectoryArchive.objects.filter(month=month, state=ArchiveState.WRITTEN)
    for archive in done:
        record(None, "trajectories.archived", archive, after={"rows": archive.rows, "sha256": archive.sha256})
    done.update(state=ArchiveState.ARCHIVED, archived_at=timezone.now())
    ArchivedJob.objects.filter(archive__month=month).update(restored_at=None)


def archive_forget(archive: TrajectoryArchive) -> None:
    """Deletes an archive whose rows the database has, in the caller's transaction."""
    paths = archive.path, archive.manifest
    archive.delete()
    transaction.on_commit(lambda: object_delete(*paths), robust=True)


def keep_days() -> Callable[[TrajectoryArchive], int]:
    """Days for which an archive is retained: by its agent's rule, else its organisation's, else the site's. 0: for
    ever."""
    rules = {(rule.organization_id, rule.agent_id): rule.keep_days for rule in ArchiveRule.objects.all()}

    def days(archive: TrajectoryArchive) -> int:
        site = settings.TRAJECTORY_ARCHIVE_DAYS
        of_all = rules.get((archive.organization_id, None), site)
        return int(rules.get((archive.organization_id, archive.agent_id), of_all))

    return days


def expired(organization_id: uuid.UUID | None = None) -> list[TrajectoryArchive]:
    """Archives whose time is over, and of which no job is back in the database."""
    kept = TrajectoryArchive.objects.filter(state=ArchiveState.ARCHIVED).exclude(jobs__restored_at__isnull=False)
    if organization_id is not None:
        kept = kept.filter(organization_id=organization_id)
    days, now = keep_days(), timezone.now()
    return [
        one for one in kept if (most := days(one)) and one.archived_at and one.archived_at <= now - timedelta(days=most)
    ]


def archive_delete(turn: ArchiveTurn, archive: TrajectoryArchive) -> None:
    """Deletes the file, then says so: what dies between is done again. What the update made of its groups goes too."""
    object_delete(archive.path, archive.manifest)
    with turn.fenced():
        gone = TrajectoryArchive.objects.filter(pk=archive.pk, state=ArchiveState.ARCHIVED)
        if gone.update(state=ArchiveState.DELETED, deleted_at=timezone.now()):
            GroupRecord.objects.filter(job_id__in=archive.jobs.values("job_id"))._raw_delete("default")
            Annotation.objects.filter(month=archive.month, job_id__in=archive.jobs.values("job_id")).delete()
            record(None, "trajectories.deleted", archive, after={"rows": archive.rows})


def stray_delete(organization_id: uuid.UUID) -> int:
    """Deletes files that no row names, left by a process that died. Returns how many."""
    named: set[str] = set()
    for archive in TrajectoryArchive.objects.filter(organization_id=organization_id).exclude(
        state=ArchiveState.DELETED
    ):
        named |= {archive.path, archive.manifest}
    return objects_unnamed_delete(folder_of(organization_id), named)


def partitions_ahead() -> None:
    """Makes this month's partition and the next one's before they are needed."""
    month = timezone.now().date().replace(day=1)
    partition_ensure(month)
    partition_ensure(month_after(month))


def _sha256(data: IO[bytes] | Any) -> str:
    digest = hashlib.sha256()
    while block := data.read(2**20):
        digest.update(block)
    return digest.hexdigest()
