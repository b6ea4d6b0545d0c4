"""Training as the job engine sees it."""

from __future__ import annotations

from agentcore_site.jobs.kinds import Progressed, kinds
from agentcore_site.jobs.lease import Lease
from agentcore_site.jobs.models import Job
from budgets.alerts.job_stops import resume_check, stop_tell


@kinds.register("training")
class TrainingKind:
    """Slices of training runs."""

    @staticmethod
    def advance(job: Job, lease: Lease) -> Progressed:
        # Imported here: web processes know the kind, but never load the trainer and what it needs.
        from training.services.execution import TrainingSlice

        return TrainingSlice(job, lease).work()

    @staticmethod
    def stopped(job: Job) -> None:
        """Tells the owner where money stopped the job. The slice has saved its work."""
        stop_tell(job)

    @staticmethod
    def resume_check(job: Job) -> None:
        resume_check(job)
