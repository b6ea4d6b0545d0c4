"""What is sent to somebody else's agent besides the task."""

from __future__ import annotations

from agentcore_site.vault import opened
from experiences.models import Agent


def agent_headers(agent: Agent) -> dict[str, str]:
    """Raises Unsealable."""
    authorization = opened(agent.authorization)
    return {"Authorization": authorization} if authorization else {}
