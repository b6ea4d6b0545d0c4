"""Archiving as the job engine sees it."""

from __future__ import annotations

from agentcore_site.jobs.kinds import Progressed, kinds
from agentcore_site.jobs.lease import Lease
from agentcore_site.jobs.models import Job
from experiences.trajectories.archive.services import KIND


@kinds.register(KIND)
class RetentionKind:
    """Slices of archiving: files that are written, brought back or deleted."""

    @staticmethod
    def advance(job: Job, lease: Lease) -> Progressed:
        from experiences.trajectories.archive.execution import retention_slice  # loads Parquet

        return retention_slice(job, lease)

    @staticmethod
    def stopped(job: Job) -> None:
        """Each file was noted as it was done."""

    @staticmethod
    def resume_check(job: Job) -> None:
        """Nothing keeps it from going on."""
