"""One organisation's archives, brought to where they should be today: one file after the other."""

from __future__ import annotations

import uuid
from typing import Any, Final

from agentcore_site.jobs.events import event_add
from agentcore_site.jobs.kinds import Progressed
from agentcore_site.jobs.lease import Lease
from agentcore_site.jobs.models import Job
from agentcore_site.lib.row_scope import everything
from experiences.models import ArchivedJob, TrajectoryArchive
from experiences.trajectories.archive.ageing import (
    ArchiveTurn,
    Portion,
    archive_delete,
    archive_write,
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
    done = job.events.filter(type__in=(RESTORED, DELETED, WRITTEN)).count()
    of = done + len(left)
    for place, one in enumerate(left, done + 1):
        lease.check()
        kind, said, data = do(lease, one)
        with lease.fenced(progress=place / of):
            event_add(job, kind, message=said, data=data)
        lease.count_unit()
        if lease.slice_over and place < of:
            return Progressed(finished=False)
    for month in months_drop():
        with lease.fenced():
            event_add(job, DROPPED, message=f"{month} is in the archive alone now.", data={"month": month})
    stray_delete(job.organization_id)
    return Progressed(finished=True)


def todo(organization_id: uuid.UUID) -> list[ArchivedJob | TrajectoryArchive | Portion]:
    """What has to be done today: jobs that were asked for, archives whose time is over, months that are due."""
    asked = archived_jobs().filter(organization_id=organization_id, restore_asked_at__isnull=False)
    due = (one for month in months_due() for one in portions(month, organization_id))
    return [*asked, *expired(organization_id), *due]


def do(turn: ArchiveTurn, one: ArchivedJob | TrajectoryArchive | Portion) -> tuple[str, str, dict[str, Any]]:
    """Does one of these. Returns the type of its event, its message and its data."""
    if isinstance(one, ArchivedJob):
        rows = job_restore(one)
        return RESTORED, f"{rows:,} trajectories were brought back.", {"job": str(one.job_id), "rows": rows}
    if isinstance(one, TrajectoryArchive):
        archive_delete(turn, one)
        return DELETED, f"The archive of {one.month:%Y-%m} was deleted.", {"archive": str(one.pk)}
    made = archive_write(turn, one)
    return WRITTEN, f"{made.rows:,} trajectories of {made.month:%Y-%m} were archived.", {"archive": str(made.pk)}


@everything()
def months_drop() -> list[str]:
    """Drops the months of which every organisation has archived all."""
    return [f"{month:%Y-%m}" for month in months_due() if not portions(month) and month_drop(month)]
