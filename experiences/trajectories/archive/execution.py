"""One organisation's archives, brought to where they should be today: one file after the other."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, Final

from agentcore_site.jobs.events import event_add
from agentcore_site.jobs.kinds import Progressed
from agentcore_site.jobs.lease import Lease
from agentcore_site.jobs.models import Job
from agentcore_site.lib.row_scope import everything
from experiences.models import ArchivedJob, TrajectoryArchive
from experiences.trajectories.archive.archive_lifecycle import (
    ArchiveTurn,
    Portion,
    archive_delete,
    archives_write,
    expired,
    month_drop,
    months_due,
    portions,
    stray_delete,
)
from experiences.trajectories.archive.restoring import archived_jobs, job_restore

RESTORED: Final = "restored"
DELETED: Final = "archive_deleted"
WRITTEN: Final = "archive_written"
DROPPED: Final = "month_dropped"


def retention_slice(job: Job, lease: Lease) -> Progressed:
    """As many files as fit into a slice; at the end the months that are archived whole."""
    left = todo(job.organization_id)
    before = job.events.filter(type__in=(RESTORED, DELETED, WRITTEN)).count()
    place, of = before, before + len(left)
    for kind, message, data in done(lease, left):
        place += 1
        with lease.fenced(progress=place / of):
            event_add(job, kind, message=message, data=data)
        lease.count_unit()
    if place < of:
        return Progressed(finished=False)
    for month in months_drop():
        with lease.fenced():
            event_add(job, DROPPED, message=f"{month} is in the archive alone now.", data={"month": month})
    stray_delete(job.organization_id)
    return Progressed(finished=True)


def todo(organization_id: uuid.UUID) -> list[ArchivedJob | TrajectoryArchive | Portion]:
    """Work of today: jobs to restore, expired archives, months that are due."""
    asked = archived_jobs().filter(organization_id=organization_id, restore_asked_at__isnull=False)
    due = (portion for month in months_due() for portion in portions(month, organization_id))
    return [*asked, *expired(organization_id), *due]


def done(
    turn: ArchiveTurn, left: Sequence[ArchivedJob | TrajectoryArchive | Portion]
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Does one of these after the other, files last, until the turn's slice is over. Of each the type of its event, its
    message and its data."""
    for place, one in enumerate(left):
        if isinstance(one, Portion):
            continue
        turn.check()
        if place and turn.slice_over:
            return
        if isinstance(one, ArchivedJob):
            rows = job_restore(one)
            yield RESTORED, f"{rows:,} trajectories were brought back.", {"job": str(one.job_id), "rows": rows}
        else:
            archive_delete(turn, one)
            yield DELETED, f"The archive of {one.month:%Y-%m} was deleted.", {"archive": str(one.pk)}
    files = [one for one in left if isinstance(one, Portion)]
    if len(files) < len(left) and turn.slice_over:
        return
    with closing(archives_write(turn, files)) as written:
        for made in written:
            message = f"{made.rows:,} trajectories of {made.month:%Y-%m} were archived."
            yield WRITTEN, message, {"archive": str(made.pk)}


@everything()
def months_drop() -> list[str]:
    """Drops the months of which every organisation has archived all."""
    return [f"{month:%Y-%m}" for month in months_due() if not portions(month) and month_drop(month)]
