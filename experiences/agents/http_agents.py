"""HTTP agents of other systems: headers that they receive, and whether their context arrives."""

from __future__ import annotations

from agentcore_site.vault import opened
from experiences.models import Agent


def agent_headers(agent: Agent) -> dict[str, str]:
    """Raises Unsealable."""
    authorization = opened(agent.authorization)
    return {"Authorization": authorization} if authorization else {}


def dropped_context_repair(agent: Agent) -> str:
    """Advice that makes the context reach the agent's model."""
    if agent.inject_context:
        return 'Make the agent call its model at the "base_url" that it is sent with each task'
    return 'Make the agent put "system" before its own prompt, or have the context put into its calls (in its form)'


def context_arrival_set(agent: Agent, arrives: bool | None) -> None:
    """Keeps whether the context that an agent is sent reaches its model; None is nothing new. Called where that was
    seen: by the test task, and by training."""
    if arrives is not None and arrives != agent.context_arrives:
        Agent.objects.filter(pk=agent.pk).update(context_arrives=arrives)
        agent.context_arrives = arrives
