"""Whose text teaches an agent, and whether the site trusts it to teach without a person (``TRUSTED_SOURCES``).

What outsiders wrote may hold orders that no sign finds. By default what was learned from it is kept in quarantine, with
its source, until a person releases it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from django.conf import settings

from experiences.models import Agent

EXECUTIONS, WEB, TOOL_SERVERS = "executions", "web", "tool_servers"
WORDS: Final = {
    EXECUTIONS: "what users and tools said in recorded executions",
    WEB: "pages of the web",
    TOOL_SERVERS: "answers of tool servers",
}
HELD: Final = "it was learned from {sources}, which outsiders write; a person has to release it"
# Functions whose names begin so only read, by convention; any other is taken to act.
_READS: Final = re.compile(
    r"(?:get|list|search|find|read|look_?up|query|check|count|show|describe|fetch|view|calc|compute|convert)(?:_|\b|[A-Z])"
)


def sources_of(agent: Agent) -> list[str]:
    """The outsiders' texts that the agent's rollouts in training may hold, by its tools."""
    found = [WEB] if "fetch" in agent.tools else []
    return [*found, TOOL_SERVERS] if any(tools for _, tools in agent.server_tools) else found


def held_reason(sources: Iterable[str]) -> str:
    """Why what was learned from these sources waits for a person; "" if the site trusts all of them."""
    distrusted = [WORDS[one] for one in sources if one not in settings.TRUSTED_SOURCES]
    return HELD.format(sources=" and ".join(distrusted)) if distrusted else ""


def acting_functions(agent: Agent) -> frozenset[str]:
    """Names of the agent's functions that may change something: all of its tool servers that are not named as reading.
    Our own tools only compute or read."""
    granted = ((server.name, tool) for server, tools in agent.server_tools for tool in tools)
    return frozenset(f"{server}__{tool}" for server, tool in granted if not _READS.match(tool))
