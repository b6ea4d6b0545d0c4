"""Obstacles to a resume of an agent's job."""

from __future__ import annotations

from uuid import UUID

from agentcore_site.jobs.models import Job
from agentcore_site.lib.errors import Conflict
from budgets.alerts import job_stops
from experiences.models import Agent


def resume_check(job: Job, agent_id: UUID | None) -> None:
    """Raises:
    Conflict: the agent is archived, or a budget has no room for the next call: the job would stop again at once."""
    if archived := Agent.objects.filter(id=agent_id, archived_at__isnull=False).first():
        raise Conflict(f"{archived.name} is archived, so its jobs do not continue.")
    job_stops.resume_check(job)
