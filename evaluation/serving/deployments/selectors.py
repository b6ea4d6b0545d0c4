"""Reads of deployments that the actor may see."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from agentcore_site.lib.errors import Missing
from agentcore_site.lib.texts import uuid_of
from agentcore_site.tenancy.actors import Actor
from evaluation.serving.models import LIVE, AgentServing, Deployment
from evaluation.serving.releases.selectors import bundle_of
from experiences.playbooks.deployed import DeployedContext


def deployments_visible(actor: Actor) -> QuerySet[Deployment]:
    return Deployment.objects.visible_to(actor).select_related("agent", "release", "previous", "created_by")


def deployment_get(actor: Actor, deployment_id: Any) -> Deployment:
    """Raises:
    Missing: no such deployment is visible to this actor."""
    named = uuid_of(deployment_id)
    found = deployments_visible(actor).filter(pk=named).first() if named else None
    if found is None:
        raise Missing("There is no such deployment.")
    return found


def serving_of(agent: Any) -> AgentServing:
    """The serving settings of an agent; an agent that was never deployed has no release."""
    found = AgentServing.objects.filter(agent=agent).select_related("release").first()
    return found or AgentServing(agent=agent, organization_id=agent.organization_id)


def deployed(agent_id: UUID) -> DeployedContext | None:
    """The part of the current release's context that does not depend on the query."""
    serving = AgentServing.objects.filter(agent=agent_id).select_related("release").first()
    if serving is None or serving.release is None:
        return None
    return DeployedContext(serving.release.number, tuple(bundle_of(serving.release).context.lessons_for("")))


def live_deployment(agent: Any) -> Deployment | None:
    return Deployment.objects.filter(agent=agent, state__in=LIVE).select_related("release").first()
