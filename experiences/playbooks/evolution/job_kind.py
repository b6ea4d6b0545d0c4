"""Evolution of playbooks as the job engine sees it."""

from __future__ import annotations

from uuid import UUID

from agentcore_site.jobs.kinds import Progressed, kinds
from agentcore_site.jobs.lease import Lease
from agentcore_site.jobs.models import Job
from budgets.alerts.job_stops import stop_notify
from experiences.agents.resuming import resume_check
from experiences.models import Evolution


@kinds.register("evolution")
class EvolutionKind:
    """Slices of evolutions."""

    @staticmethod
    def advance(job: Job, lease: Lease) -> Progressed:
        # Imported here: web processes know the kind, but never load the model's client and what it needs.
        from experiences.playbooks.evolution.execution import EvolutionSlice

        return EvolutionSlice(job, lease).work()

    @staticmethod
    def stopped(job: Job) -> None:
        from experiences.playbooks.services.evolutions import evolution_stopped

        evolution_stopped(job)
        stop_notify(job)

    @staticmethod
    def resume_check(job: Job) -> None:
        resume_check(job, EvolutionKind.agent_of(job))

    @staticmethod
    def agent_of(job: Job) -> UUID | None:
        return Evolution.objects.filter(job=job).values_list("agent_id", flat=True).first()
