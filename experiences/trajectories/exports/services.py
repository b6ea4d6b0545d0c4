"""Services of exports that a job writes: starting one, reading its file, ending it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.db import transaction
from django.utils import timezone

from agentcore_site.audit.services import record
from agentcore_site.jobs import lifecycle
from agentcore_site.lib.errors import Conflict, Invalid, Missing
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.permissions import require
from experiences.models import ExportPart, TrajectoryExport
from experiences.trajectories.exports.files import (
    GONE,
    FileSegment,
    read_between,
    segments_joined,
    segments_tarred,
)
from experiences.trajectories.exports.formats import FORMATS
from experiences.trajectories.exports.selection import Export, export_of
from experiences.trajectories.exports.stored import KIND, stored_part
from experiences.trajectories.filters import TrajectoryFilters

STREAMED_MOST: Final = 100_000  # trajectories that the console streams; more are written by a job


@dataclass(frozen=True)
class ExportFile:
    """A file to download: its bytes from any place, and a mark that changes with them."""

    name: str
    media: str
    etag: str
    segments: Sequence[FileSegment]

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    def read(self, start: int, stop: int) -> Iterator[bytes]:
        return read_between(self.segments, start, stop)


def export_queue(actor: Actor, filters: Mapping[str, Any], *, format: str) -> TrajectoryExport:
    """Queues the job that writes a file of all trajectories that began up to now and pass the filters.

    Raises:
        Missing, Forbidden: the actor may not, or job or agent are not there.
        Invalid: a filter or the format is wrong.
        Conflict: the data of several organisations is asked for at once.
        TooMany, Insufficient: no job is taken now.
    """
    asked = filters_stored(filters)
    format_require(format)
    until = timezone.now()
    organizations, _ = export_of(actor, asked, format=format, until=until)
    if len(organizations) > 1:
        raise Conflict("You belong to several organisations: name the job or the agent whose trajectories you want.")
    organization = Organization.objects.get(pk=organizations[0])
    with transaction.atomic():
        job = lifecycle.submit(actor, kind=KIND, organization=organization, title=f"Export as {format}")
        made = TrajectoryExport.objects.create(
            job=job, organization=organization, format=format, filters=asked, until=until
        )
        record(actor, "trajectories.exported", job, after={"format": format, "filters": asked, "job": str(job.pk)})
    return made


def filters_stored(filters: Mapping[str, Any]) -> dict[str, str]:
    """Filters as texts, without those that ask for nothing.

    Raises:
        Invalid: there is no filter of that name.
    """
    if unknown := [name for name in filters if name not in TrajectoryFilters.base_filters]:
        message = f"{unknown[0][:40]!r} is none of {', '.join(TrajectoryFilters.base_filters)}."
        raise Invalid(f"There is no such filter: {message}", fields={"filters": message})
    given = {name: value for name, value in filters.items() if value not in (None, "")}
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}


def format_require(format: str) -> None:
    """Raises:
    Invalid: there is no such format of files."""
    if format not in FORMATS:
        message = f"format must be one of {', '.join(FORMATS)}; got {format[:20]!r}."
        raise Invalid(message, fields={"format": message})


def export_file(actor: Actor, export: TrajectoryExport, *, part: int | None = None) -> ExportFile:
    """The file of an export, or one part of it. Who may export is asked at each download, and each is logged.

    Raises:
        Missing, Forbidden: the actor may not, or the file is gone.
        Conflict: it is not written yet.
        KeyUnavailable: it is encrypted, and can't be read now.
    """
    require(actor, "export", export.organization_id)
    if export.deleted_at is not None:
        raise Missing(GONE)
    if not export.is_there:
        raise Conflict(f"This export is {export.job.get_status_display().lower()}: there is no file yet.")
    rows = list(export.parts.all())
    if part is not None and not (rows := [row for row in rows if row.number == part]):
        raise Missing(f"This export has no part {part}.")
    found = _file(export, rows, part)
    record(actor, "export.downloaded", export.job, after={"part": part})
    return found


def _file(export: TrajectoryExport, rows: Sequence[ExportPart], part: int | None) -> ExportFile:
    format = FORMATS[export.format]
    parts = [stored_part(export, row) for row in rows]
    digests = "/".join(row.sha256 for row in rows)
    etag = f'"{hashlib.sha256(f"{export.pk}/{part}/{digests}".encode()).hexdigest()}"'
    if format.joined or len(parts) == 1:
        name = format.name if part is None else f"-{part:05}.".join(format.name.rsplit(".", 1))
        return ExportFile(name, format.media, etag, segments_joined(parts))
    return ExportFile(f"{format.name}.tar", "application/x-tar", etag, segments_tarred(parts, format.name))


def export_cancel(actor: Actor, export: TrajectoryExport) -> None:
    """Raises:
    Missing, Forbidden: the actor may not.
    Conflict: it has ended already."""
    require(actor, "export", export.organization_id)
    lifecycle.cancel(actor, export.job)


def export_again(export: TrajectoryExport) -> tuple[list[Any], Export]:
    """The selection of an export as its owner may see it now.

    Raises:
        Missing, Forbidden: the owner is gone, or may not any more.
    """
    owner = export.job.created_by
    if owner is None:
        raise Missing("The person who asked for this export is not here any more.")
    return export_of(Actor.of(owner), export.filters, format=export.format, until=export.until)
