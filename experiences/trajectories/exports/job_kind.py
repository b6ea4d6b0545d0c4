"""The export of trajectories as the job engine sees it."""

from __future__ import annotations

from django.db import transaction

from agentcore_site.jobs.kinds import Progressed, kinds
from agentcore_site.jobs.lease import Lease
from agentcore_site.jobs.models import Job, Status
from experiences.models import TrajectoryExport
from experiences.trajectories.exports.stored import KIND, export_delete


@kinds.register(KIND)
class ExportKind:
    """Slices of an export: parts of its file."""

    @staticmethod
    def advance(job: Job, lease: Lease) -> Progressed:
        from experiences.trajectories.exports.execution import export_slice

        return export_slice(job, lease)

    @staticmethod
    def stopped(job: Job) -> None:
        """Each part was noted as it was stored. What was cancelled is not kept."""
        if job.status == Status.CANCELLED:
            export = TrajectoryExport.objects.filter(pk=job.pk).first()
            if export is not None:
                transaction.on_commit(lambda: export_delete(export), robust=True)

    @staticmethod
    def resume_check(job: Job) -> None:
        """Nothing keeps it from going on."""
