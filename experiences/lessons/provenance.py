"""Sources of texts that teach an agent, and whether the site trusts them without a person (``TRUSTED_SOURCES``).

What outsiders wrote may hold orders that no sign finds. By default what was learned from executions is kept in
quarantine, with its source, until a person releases it. Lessons of training need no such hold: they are tried in
rollouts of their job alone until the gate, on queries that nothing was learned from, lets them through.
"""

from __future__ import annotations

import re
from typing import Final

from django.conf import settings

from experiences.models import Agent

EXECUTIONS: Final = "executions"
HELD: Final = (
    "it was learned from what users and tools said in recorded executions, which outsiders write; a person has to"
    " release it"
)
# Functions whose names begin so only read, by convention; any other is taken to act.
_READS: Final = re.compile(
    r"(?:get|list|search|find|read|look_?up|query|check|count|show|describe|fetch|view|calc|compute|convert)(?:_|\b|[A-Z])"
)


def held_reason(agent: Agent) -> str:
    """Why what was learned from executions waits for a person; "" if the site trusts them, or the agent's playbook is
    served without a release."""
    return "" if agent.serves_directly or EXECUTIONS in settings.TRUSTED_SOURCES else HELD


def acting_functions(agent: Agent) -> frozenset[str]:
    """Names of the agent's functions that may change something: all of its tool servers that are not named as reading.
    Our own tools only compute or read."""
    granted = ((server.name, tool) for server, tools in agent.server_tools for tool in tools)
    return frozenset(f"{server}__{tool}" for server, tool in granted if not _READS.match(tool))
