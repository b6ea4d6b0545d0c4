"""Evaluation as the job engine sees it."""

from __future__ import annotations

from uuid import UUID

from agentcore_site.jobs.kinds import Progressed, kinds
from agentcore_site.jobs.lease import Lease
from agentcore_site.jobs.models import Job
from budgets.alerts.job_stops import stop_notify
from evaluation.models import EvaluationRun
from experiences.agents.resuming import resume_check
from training.models import TrainingRun


@kinds.register("evaluation")
class EvaluationKind:
    """Slices of evaluations."""

    @staticmethod
    def load() -> None:
        # Imported here: web processes know the kind, but must not load the environments and their dependencies.
        import evaluation.execution  # noqa: F401

    @staticmethod
    def advance(job: Job, lease: Lease) -> Progressed:
        from evaluation.execution import EvaluationSlice

        return EvaluationSlice(job, lease).work()

    @staticmethod
    def stopped(job: Job) -> None:
        """Each part was committed when it ended."""
        run = TrainingRun.objects.filter(evaluations__job=job).select_related("job").first()
        stop_notify(job, payer=None if run is None else run.job)

    @staticmethod
    def resume_check(job: Job) -> None:
        resume_check(job, EvaluationKind.agent_of(job))

    @staticmethod
    def agent_of(job: Job) -> UUID | None:
        return EvaluationRun.objects.filter(job=job).values_list("agent_id", flat=True).first()
