"""Training as the job engine sees it."""

from __future__ import annotations

from uuid import UUID

from agentcore_site.jobs.kinds import Progressed, kinds
from agentcore_site.jobs.lease import Lease
from agentcore_site.jobs.models import Job
from agentcore_site.lib import feedback_metrics
from budgets.alerts.job_stops import stop_notify
from experiences.agents.resuming import resume_check
from training.models import TrainingRun


@kinds.register("training")
class TrainingKind:
    """Slices of training runs."""

    @staticmethod
    def load() -> None:
        # Imported here: web processes know the kind, but never load the trainer and what it needs.
        import training.services.execution  # noqa: F401

    @staticmethod
    def advance(job: Job, lease: Lease) -> Progressed:
        from training.services.execution import TrainingSlice

        return TrainingSlice(job, lease).work()

    @staticmethod
    def stopped(job: Job) -> None:
        """Notifies the owner if money stopped the job. The slice has saved its work."""
        stop_notify(job)
        if job.ended and job.started_at and job.finished_at:
            feedback_metrics.training_duration.observe((job.finished_at - job.started_at).total_seconds())
            samples = TrainingRun.objects.filter(job=job).values_list("trajectories", flat=True).first()
            feedback_metrics.training_samples.observe(samples or 0)

    @staticmethod
    def resume_check(job: Job) -> None:
        resume_check(job, TrainingKind.agent_of(job))

    @staticmethod
    def agent_of(job: Job) -> UUID | None:
        return TrainingRun.objects.filter(job=job).values_list("agent_id", flat=True).first()
