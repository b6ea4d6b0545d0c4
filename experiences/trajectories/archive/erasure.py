"""Erasure in archives: a file with the words is written again without those rows, and the old file is deleted. If the
database still has the rows, the file is given up, and written again when its month is due."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from django.db import transaction
from django.utils import timezone

from agentcore_site.encryption.columns import opened_stored, tables
from agentcore_site.lib.errors import Conflict
from agentcore_site.lib.key_errors import Unopenable
from agentcore_site.lib.object_storage import object_delete, object_open
from agentcore_site.tenancy.erasure import ErasureFinding, erasure_handlers
from experiences.erasure import stored_queries
from experiences.models import Annotation, ArchivedJob, ArchiveState, TrajectoryArchive, TrajectoryRecord
from experiences.trajectories.archive.services import job_active
from experiences.trajectories.storage import partition_make


@erasure_handlers.register("archived trajectories")
def archives(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    """Raises:
    Conflict: an archive is being written."""
    kept = TrajectoryArchive.objects.filter(organization_id=organization_id).exclude(state=ArchiveState.DELETED)
    if kept.exists() and job_active(organization_id):
        raise Conflict("Trajectories are being archived. Let that job end, or cancel it, then try again.")
    asked = stored_queries(organization_id, words)
    found = {one: rows for one in kept if (rows := _rows_with(one, words, asked))}

    def erase() -> None:
        for archive in found:
            _rewrite(archive, words, asked)

    return ErasureFinding(sum(found.values()), erase)


def _rows_with(archive: TrajectoryArchive, words: Sequence[str], asked: Sequence[str]) -> int:
    from experiences.trajectories.archive.files import groups_read, without_rows

    try:
        with object_open(archive.path) as stored:
            return sum(one.num_rows - without_rows(one, words, asked, _steps).num_rows for one in groups_read(stored))
    except FileNotFoundError:  # a file that is gone holds nothing of anybody
        return 0


def _steps(rows: Any) -> list[str]:
    """The steps of rows of a file as JSON. Those that do not open say nothing to anybody."""
    table, found = tables.get("trajectories"), []
    for id, owner, stored in zip(*(rows[name].to_pylist() for name in ("id", "organization_id", "steps")), strict=True):
        try:
            found.append(opened_stored(table, "steps", owner, id, stored))
        except Unopenable:
            found.append("[]")
    return found


def _rewrite(archive: TrajectoryArchive, words: Sequence[str], asked: Sequence[str]) -> None:
    """In the erasure's transaction: if that fails, the new file is a stray one, without the words, and swept up."""
    from experiences.trajectories.archive.archive_lifecycle import archive_forget, file_prove, file_write
    from experiences.trajectories.archive.files import (
        ArchiveWriter,
        RowsWritten,
        groups_read,
        without_ids,
        without_rows,
    )

    if archive.state == ArchiveState.WRITTEN:
        archive_forget(archive)
        return
    old, parts = [archive.path, archive.manifest], list(archive.jobs.order_by("first_group"))
    archive.revision += 1
    gone: list[Any] = []

    def rows(writer: ArchiveWriter) -> Iterator[tuple[uuid.UUID, Any]]:
        with object_open(old[0]) as stored:
            for part in parts:
                for group in groups_read(stored, range(part.first_group, part.first_group + part.groups)):
                    left = without_rows(group, words, asked, _steps)
                    gone.append(without_ids(group, left["id"].to_pylist()))
                    writer.write_table(left)
                    yield part.job_id, RowsWritten(left.num_rows)

    with tempfile.TemporaryDirectory(prefix="archive-") as folder:
        jobs = file_prove(file_write(archive, Path(folder) / "rows.parquet", rows), lambda: None)
    _announce(archive, gone)
    if not archive.rows:
        archive.state, archive.deleted_at = ArchiveState.DELETED, timezone.now()
        transaction.on_commit(lambda: object_delete(archive.path, archive.manifest), robust=True)
    archive.save()
    _renew(parts, {job.job_id: job for job in jobs})
    transaction.on_commit(lambda: object_delete(*old), robust=True)


def _announce(archive: TrajectoryArchive, gone: Sequence[Any]) -> None:
    """Publishes the deletions to listeners (events, the warehouse): the rows are put into the table for a moment and
    deleted there."""
    from experiences.trajectories.archive.files import without_ids
    from experiences.trajectories.archive.rows import rows_return

    partition_make(archive.month)
    ids = [one for table in gone for one in table["id"].to_pylist()]
    rows = TrajectoryRecord.objects.filter(month=archive.month, id__in=ids)
    back = set(map(str, rows.values_list("id", flat=True)))  # of a job that was brought back: deleted by another place
    rows_return(archive.month, (without_ids(table, back) for table in gone))
    rows.exclude(id__in=back)._raw_delete("default")
    Annotation.objects.filter(trajectory_id__in=ids).delete()


def _renew(parts: Sequence[ArchivedJob], jobs: dict[uuid.UUID, Any]) -> None:
    """Updates the row of each job to the new file; a restore of the job stays."""
    for part in parts:
        new = jobs[part.job_id]
        part.rows, part.mark, part.first_group, part.groups = new.rows, new.mark, new.first_group, new.groups
        part.save(update_fields=["rows", "mark", "first_group", "groups"])
