"""Jobs brought back from the archive into the database, where they age again."""

from __future__ import annotations

import uuid
from datetime import date

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from agentcore_site.lib.errors import Missing
from agentcore_site.lib.object_storage import object_open
from experiences.models import ArchivedJob, ArchiveState
from experiences.trajectories.archive.archive_lifecycle import ArchiveUnsound
from experiences.trajectories.archive.digests import NONE, Marked
from experiences.trajectories.archive.files import groups_read
from experiences.trajectories.archive.rows import marks, queries_return, rows_return
from experiences.trajectories.storage import partition_make


def archived_jobs(*, job_id: uuid.UUID | None = None, month: date | None = None) -> QuerySet[ArchivedJob]:
    """Jobs (parts of jobs, where one went on after it was archived) that only the archive has."""
    found = ArchivedJob.objects.filter(archive__state=ArchiveState.ARCHIVED, restored_at=None)
    found = found if job_id is None else found.filter(job_id=job_id)
    found = found if month is None else found.filter(archive__month=month)
    return found.select_related("archive").order_by("archive_id", "first_group")


def job_restore(archived: ArchivedJob) -> int:
    """Puts the rows back, all or none, and proves that they are as they were. Returns how many.

    Raises:
        Missing: they are not archived any more.
        ArchiveUnsound: the file is not as it was written; nothing was put back.
        ObjectsUnavailable, FileNotFoundError: the file can't be read.
    """
    archive = archived.archive
    key = (archive.agent_id, archived.job_id)
    with transaction.atomic():
        if archived_jobs().filter(pk=archived.pk).select_for_update(of=("self",), no_key=True).first() is None:
            raise Missing("These rows are not in the archive any more.")
        partition_make(archive.month)
        before = marks(archive.month, [archived.job_id]).get(key, NONE)
        groups = range(archived.first_group, archived.first_group + archived.groups)
        with object_open(archive.path) as stored:
            rows_return(archive.month, groups_read(stored, groups))
        queries_return(archive.month, archived.job_id)
        after = marks(archive.month, [archived.job_id]).get(key, before)
        if after != before.plus(Marked(archived.rows, int(archived.mark))):
            raise ArchiveUnsound(f"{archive.path} does not hold job {archived.job_id} as it was archived.")
        ArchivedJob.objects.filter(pk=archived.pk).update(restored_at=timezone.now(), restore_asked_at=None)
    return archived.rows
