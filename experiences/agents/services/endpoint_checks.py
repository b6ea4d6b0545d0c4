"""The check before money is spent: does the service take what a job of the agent sends?"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from django.utils import timezone

from agentcore_site.audit.models import AuditEvent
from agentcore_site.audit.services import record
from agentcore_site.lib.errors import Invalid
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from experiences.agents.services.endpoints import endpoint_tried, named
from experiences.models import Agent, EndpointKind
from experiences.models.agents import WITHOUT_TOOLS
from experiences.rollouts.runtimes.base import calls_model

RECENT: Final = timedelta(hours=1)


def endpoint_check(actor: Actor, agent: Agent) -> None:
    """Calls the agent's model as its job will, unless a test of the last hour did well. A service that does not answer
    at all is no reason to refuse: its jobs wait for it.

    Raises:
        Missing, Forbidden: the actor may not start a job of the agent.
        Invalid: the service refuses such calls; the message says with which options it answers.
    """
    require(actor, "run.start", agent.organization_id)
    if (
        not calls_model(agent.runtime)
        or _tested(agent)
        or (agent.endpoint is not None and agent.endpoint.kind == EndpointKind.WEIGHTS)
    ):
        return
    tools = agent.runtime == "llm" and agent.philosophy not in WITHOUT_TOOLS
    found = endpoint_tried(agent.endpoint, agent.model, agent.organization_id, agent.pk, tools=tools, more=False)
    target, seen = agent.endpoint or agent.organization, {"model": found.asked or found.model, "ok": found.ok}
    record(actor, "endpoint.tested", target, organization=agent.organization, after=seen)
    if not found.refused:
        return
    remedy = (
        f"Save {named(found.options)} as the options of the endpoint, or test it, which can save them."
        if found.options
        else "Test the endpoint on its page."
    )
    message = f"The model's service refuses what this job would send: {found.message} {remedy}"
    raise Invalid(message, fields={"agent": message})


def _tested(agent: Agent) -> bool:
    """Whether a recent test of the endpoint as it is now did well."""
    if agent.endpoint is None:
        return False
    since = max(timezone.now() - RECENT, agent.endpoint.updated_at)
    rows = AuditEvent.objects.filter(
        organization_id=agent.organization_id,
        action="endpoint.tested",
        target_id=str(agent.endpoint_id),
        at__gte=since,
        after__ok=True,
    )
    model = agent.model or agent.endpoint.model
    return rows.filter(after__model=model).exists()
