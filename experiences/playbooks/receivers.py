"""Acts on changes of agents: an agent that evolves has a playbook, an archived one is served no context."""

from __future__ import annotations

from typing import Any

from django.dispatch import receiver

from agentcore_site.tenancy.actors import Actor
from experiences.agents.signals import agent_archived, agent_context_changed, agent_evolves
from experiences.models import Agent
from experiences.playbooks.invalidation import announce_on_commit
from experiences.playbooks.services.playbooks import playbook_of_new_agent, playbook_retire


@receiver(agent_evolves)
def on_evolves(sender: Any, *, actor: Actor, agent: Agent, **_: Any) -> None:
    playbook_of_new_agent(actor, agent)


@receiver(agent_archived)
def on_archived(sender: Any, *, actor: Actor, agent: Agent, **_: Any) -> None:
    playbook_retire(actor, agent)


@receiver(agent_context_changed)
def on_context_changed(sender: Any, *, agent: Agent, **_: Any) -> None:
    announce_on_commit(agent.id)
