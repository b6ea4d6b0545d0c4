"""The philosophy of an agent that names none, and the one that can't call its tools."""

from __future__ import annotations

from typing import Final

from agentcore_site.lib.errors import Invalid
from agentcore_site.lib.registry import UnknownName
from experiences.agents.services.grants import Grants
from experiences.models import Agent, AgentRuntime, Philosophy
from experiences.rollouts.environments import environments

NO_TOOLS: Final = "Chat offers the model no tools. Choose ReAct, which calls them, or leave the tools out."


def philosophy_of_new(agent: Agent, grants: Grants | None) -> str:
    """Chat for a language model without tools; ReAct for all others, and where the environment brings tools."""
    if agent.runtime != AgentRuntime.LLM or agent.tools or grants:
        return Philosophy.REACT
    try:
        brings_tools = getattr(environments.get(agent.environment), "brings_tools", False)
    except UnknownName:  # refused when the agent is saved
        brings_tools = False
    return Philosophy.REACT if brings_tools else Philosophy.CHAT


def philosophy_check(agent: Agent, grants: Grants | None) -> None:
    """``grants``: those that the agent gets now; None: it keeps its own.

    Raises:
        Invalid: the agent has tools that its philosophy would never offer.
    """
    if agent.runtime != AgentRuntime.LLM or agent.philosophy != Philosophy.CHAT:
        return
    granted = grants if grants is not None else agent.granted_tools
    if agent.tools or any(granted.values()):
        raise Invalid(NO_TOOLS, fields={"philosophy": NO_TOOLS})
