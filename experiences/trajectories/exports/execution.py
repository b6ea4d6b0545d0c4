"""One slice of an export: parts that are written to a file, stored, and only then said to be there."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agentcore_site.encryption.data_keys import active_key, active_version
from agentcore_site.jobs.events import event_add
from agentcore_site.jobs.kinds import Progressed
from agentcore_site.jobs.lease import Lease, MustFail
from agentcore_site.jobs.models import Job, Reason
from agentcore_site.lib.object_storage import object_save_file
from experiences.models import ExportPart, TrajectoryExport
from experiences.trajectories.exports.files import PartFile, place_of_part
from experiences.trajectories.exports.formats import FORMATS, portions
from experiences.trajectories.exports.rows import ExportRow
from experiences.trajectories.exports.selection import Export, Mark
from experiences.trajectories.exports.services import export_again
from experiences.trajectories.exports.stored import files_delete

PART_ROWS: Final = 50_000
PART_BYTES: Final = 32 * 2**20
WRITTEN: Final = "part_written"
CHANGED: Final = (
    "Trajectories were archived, brought back or erased while they were exported. Start the export again: it reads them"
    " from where they are now."
)
Portions = Iterator[tuple[list[ExportRow], Mark]]


@dataclass
class WrittenPart:
    """A part in a file of this machine, and where the rows of the next one begin."""

    part: ExportPart
    read: int = 0
    mark: Mark | None = None
    last: bool = True


def export_slice(job: Job, lease: Lease) -> Progressed:
    """Parts from where the last one ended, until the slice is over."""
    export = TrajectoryExport.objects.select_related("job__created_by").get(pk=job.pk)
    _, selection = export_again(export)
    _begin(export, selection, lease)
    with closing(portions(selection, export.format, Mark.of(export.mark))) as waiting:
        while True:
            with tempfile.TemporaryDirectory(prefix="export-") as folder:
                path = Path(folder) / "part"
                written = _part_write(export, waiting, path, lease)
                if not _part_keep(export, written, path, lease):
                    return Progressed(finished=False)
            if written.last:
                break
            if lease.slice_over:
                return Progressed(finished=False)
    _require_same(export, export_again(export)[1])
    files_delete(export, keep=list(export.parts.values_list("path", flat=True)))
    with lease.fenced(progress=1.0):
        pass
    return Progressed(finished=True)


def _begin(export: TrajectoryExport, selection: Export, lease: Lease) -> None:
    """Counts what there is, once; in later slices looks whether it is the same still."""
    if export.total is not None:
        return _require_same(export, selection)
    export.total, export.archives = selection.estimate(), selection.archive_parts()
    with lease.fenced():
        TrajectoryExport.objects.filter(pk=export.pk).update(total=export.total, archives=export.archives)


def _require_same(export: TrajectoryExport, selection: Export) -> None:
    """Raises:
    MustFail: a row that was in the database is in an archive now, or the reverse: it might be left out, or come
        twice."""
    if export.archives != selection.archive_parts():
        raise MustFail(Reason.ERROR, CHANGED)


def _part_write(export: TrajectoryExport, waiting: Portions, path: Path, lease: Lease) -> WrittenPart:
    format, key = FORMATS[export.format], active_key(export.organization_id)
    number = export.parts.count() + 1
    # Named by the attempt too: a worker that comes late overwrites nothing.
    made = ExportPart(export=export, number=number, path=f"{export.folder}/{number:05}-{lease.attempt}", rows=0)
    made.key_version = 0 if key is None else key.version
    written, writer = WrittenPart(made), format.writer()
    with PartFile(path, key, place_of_part(export.organization_id, export.pk, number)) as file:
        if number == 1 or not format.joined:
            file.write(writer.head())
        for rows, mark in waiting:
            lease.check()
            data, n = writer.write(rows)
            file.write(data)
            made.rows, written.read, written.mark = made.rows + n, written.read + len(rows), mark
            if written.read >= PART_ROWS or file.size >= PART_BYTES:
                written.last = False
                break
        file.write(writer.tail())
    made.size, made.sha256 = file.size, file.sha256
    return written


def _part_keep(export: TrajectoryExport, written: WrittenPart, path: Path, lease: Lease) -> bool:
    """Stores the part, then says in one transaction that it is there and where the next one begins: a process that dies
    before that leaves a file that no row names, and its rows are written again. False: the organisation switched its
    encryption meanwhile, and the part has to be written again."""
    part = written.part
    if written.mark is None and part.number > 1:
        return True  # the part before ended with the last row
    object_save_file(part.path, path)
    read = export.read + written.read
    with lease.fenced(progress=min(0.99, read / max(1, export.total or 1))):
        if active_version(export.organization_id) != part.key_version:
            return False
        part.save(force_insert=True)
        mark = export.mark if written.mark is None else written.mark.stored()
        rows, size = export.rows + part.rows, export.size + part.size
        TrajectoryExport.objects.filter(pk=export.pk).update(mark=mark, read=read, rows=rows, size=size)
        data = {"part": part.number, "rows": part.rows, "bytes": part.size, "sha256": part.sha256}
        event_add(export.job, WRITTEN, message=f"{rows:,} rows are written.", data=data)
    export.mark, export.read, export.rows, export.size = mark, read, rows, size
    return True
