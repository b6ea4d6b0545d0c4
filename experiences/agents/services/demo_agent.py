"""The agent that shows what the program does: it learns within minutes, without a key, a network or a cent."""

from __future__ import annotations

from typing import Final

from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import current_organization, require
from experiences.agents.services.agents import agent_create
from experiences.models import Agent

DEMO_SLUG: Final = "tool-router"


def demo_agent(actor: Actor) -> Agent:
    """The demo agent of the actor's organisation, made where there is none.

    Raises:
        Missing, Forbidden: the actor may not.
    """
    organization = current_organization(actor)
    require(actor, "agent.edit", organization)
    found = Agent.objects.filter(organization=organization, slug=DEMO_SLUG).first()
    return found or agent_create(
        actor,
        name="Tool router",
        slug=DEMO_SLUG,
        description="Learns from rewards alone which tool fits a question, and to check before it answers.",
        environment="reasoning_gym",
    )
