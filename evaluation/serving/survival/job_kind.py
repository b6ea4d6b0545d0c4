"""Measurements of lessons on other models as the job engine sees them."""

from __future__ import annotations

from uuid import UUID

from agentcore_site.jobs.kinds import Progressed, kinds
from agentcore_site.jobs.lease import Lease
from agentcore_site.jobs.models import Job
from budgets.alerts.job_stops import stop_notify
from evaluation.serving.models import SurvivalRun
from experiences.agents.resuming import resume_check


@kinds.register("survival")
class SurvivalKind:
    """Slices of measurements of lessons."""

    @staticmethod
    def advance(job: Job, lease: Lease) -> Progressed:
        # Imported here: web processes know the kind, but never load the environments and what they need.
        from evaluation.serving.survival.execution import SurvivalSlice

        return SurvivalSlice(job, lease).work()

    @staticmethod
    def stopped(job: Job) -> None:
        """Each part was committed as it was finished."""
        stop_notify(job)

    @staticmethod
    def resume_check(job: Job) -> None:
        resume_check(job, SurvivalKind.agent_of(job))

    @staticmethod
    def agent_of(job: Job) -> UUID | None:
        return SurvivalRun.objects.filter(job=job).values_list("agent_id", flat=True).first()
