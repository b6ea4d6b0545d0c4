"""Archived rows read as if they were in the database: they are in a table of the session for one transaction, in the
place of the real one. So lists, filters, pages and exports need no code of their own."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from django.db import connection
from django.db.models import QuerySet
from django.utils.dateparse import parse_datetime

from agentcore_site.lib.errors import Missing
from agentcore_site.lib.object_storage import object_open
from agentcore_site.lib.storable import in_utc
from agentcore_site.lib.texts import uuid_of
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require_somewhere
from experiences.models import ArchivedJob, ArchiveState, TrajectoryArchive, TrajectoryRecord
from experiences.models.agent_lookup import agent_get

GONE = "The archive that held this is not in the object storage any more."


def archived_visible(actor: Actor | None) -> QuerySet[ArchivedJob]:
    """Jobs whose rows only the archive has."""
    return (
        (ArchivedJob.objects.all() if actor is None else ArchivedJob.objects.visible_to(actor))
        .filter(archive__state=ArchiveState.ARCHIVED, restored_at=None)
        .select_related("archive")
        .order_by("archive__month", "archive_id", "first_group")
    )


@contextmanager
def job_rows(actor: Actor | None, job_id: Any, **wanted: Any) -> Iterator[TrajectoryArchive | None]:
    """Within the block, queries of trajectories see the rows of this job, wherever they are. Yields the archive that
    they are read from; None (and nothing is changed) where all are in the database, or no job is named. Without an
    actor: for callers who have looked whose job it is.

    Raises:
        Missing: the file is gone.
        ObjectsUnavailable: it can't be read.
    """
    parts = list(archived_visible(actor).filter(job_id=job_id)) if job_id else []
    if not parts:
        yield None
        return
    with _reading(parts, **wanted):
        yield parts[-1].archive


@contextmanager
def trajectory_rows(actor: Actor, *trajectory_ids: Any) -> Iterator[TrajectoryArchive | None]:
    """The same for the groups of these trajectories; ids that are found nowhere stay so.

    Raises:
        Forbidden: the actor's role does not read trajectories.
        Missing, ObjectsUnavailable: as above.
    """
    require_somewhere(actor, "data.view")
    asked = [one for one in map(uuid_of, trajectory_ids) if one]
    hot = set(TrajectoryRecord.objects.visible_to(actor).filter(id__in=asked).values_list("id", flat=True))
    lost = [one for one in asked if one not in hot]
    places = [place for one in lost if (place := _place(actor, str(one)))]
    if not places:
        yield None
        return
    with _shadowing() as put:
        for part, wanted in places:
            put([part], wanted)
        _hot("id = ANY(%s)", list(hot))
        yield places[0][0].archive


@contextmanager
def hour_rows(organization_id: uuid.UUID, since: datetime, until: datetime) -> Iterator[None]:
    """Within the block, queries of the organisation's trajectories of that time see the archived ones too."""
    parts = archived_visible(None).filter(
        organization_id=organization_id, archive__first_at__lt=until, archive__last_at__gte=since
    )
    if not parts:
        yield
        return
    with _shadowing() as put:
        put(parts, {})
        _hot("organization_id = %s AND created_at >= %s AND created_at < %s", organization_id, since, until)
        yield


@contextmanager
def row_group_rows(part: ArchivedJob, group: int) -> Iterator[None]:
    """Within the block, queries of trajectories see the rows of one row group of an archived job alone.

    Raises:
        Missing, ObjectsUnavailable: as above.
    """
    with _shadowing() as put:
        put([part], {}, group)
        yield


@contextmanager
def _reading(parts: Sequence[ArchivedJob], **wanted: Any) -> Iterator[None]:
    with _shadowing() as put:
        put(parts, wanted)
        # A job that went on after it was archived has rows in both.
        _hot("month = ANY(%s) AND job_id = %s", list({part.archive.month for part in parts}), parts[0].job_id)
        yield


@contextmanager
def _shadowing() -> Iterator[Any]:
    # Parquet is loaded by those who read an archive alone.
    from experiences.trajectories.archive.files import groups_read
    from experiences.trajectories.archive.rows import rows_put, shadow

    with shadow() as relation:

        def put(parts: Sequence[ArchivedJob], wanted: dict[str, Any], group: int | None = None) -> None:
            for part in parts:
                groups = range(part.first_group, part.first_group + part.groups) if group is None else [group]
                try:
                    with object_open(part.archive.path) as stored:
                        rows_put(relation, groups_read(stored, groups, **wanted))
                except FileNotFoundError as error:
                    raise Missing(GONE) from error

        yield put


def _hot(condition: str, *values: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO pg_temp.experiences_trajectory SELECT * FROM public.experiences_trajectory"  # noqa: S608
            f" WHERE {condition}",
            values,
        )


def _place(actor: Actor, trajectory_id: str) -> tuple[ArchivedJob, dict[str, Any]] | None:
    """The job and place of an archived trajectory: newest archives first."""
    from experiences.trajectories.archive.files import place_of

    kept = TrajectoryArchive.objects.visible_to(actor).filter(state=ArchiveState.ARCHIVED)
    for archive in kept.order_by("-month", "-written_at"):
        try:
            with object_open(archive.path) as stored:
                found = place_of(stored, trajectory_id)
        except FileNotFoundError:
            continue
        if found is None:
            continue
        part = archived_visible(actor).filter(archive=archive, job_id=found["job_id"]).first()
        if part is not None:
            part.archive = archive
            return part, {name: found[name] for name in ("iteration", "scenario")}
    return None


def archived_in(actor: Actor, organizations: Sequence[uuid.UUID], filters: dict[str, Any]) -> list[ArchivedJob]:
    """The archived jobs of which an export with these filters, which were checked, may hold rows."""
    found = archived_visible(actor).filter(organization_id__in=organizations)
    if filters.get("job"):
        found = found.filter(job_id=filters["job"])
    if filters.get("agent"):
        found = found.filter(archive__agent=agent_get(actor, filters["agent"]))
    # A bound that is read in another way than the filter does leaves out nothing: it costs the reading of a file.
    if since := _moment(filters.get("since")):
        found = found.filter(archive__last_at__gte=since)
    if until := _moment(filters.get("until")):
        found = found.filter(archive__first_at__lt=until)
    return list(found)


def _moment(value: Any) -> datetime | None:
    found = value if isinstance(value, datetime) else parse_datetime(str(value or ""))
    return in_utc(found) if found is not None and found.tzinfo is not None else None
