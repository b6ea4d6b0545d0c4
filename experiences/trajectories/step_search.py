"""The search inside of steps. Three indexes of the database serve it: the tools that a trajectory used, the words of
its steps, and those of their errors. What is encrypted is not searched, nor what is archived."""

from __future__ import annotations

from typing import Any, Final

from django.db.models import QuerySet

from experiences.models import TrajectoryRecord
from experiences.trajectories.conditions import Condition

FOUND: Final = "({month}, {id}) IN (SELECT month, id FROM experiences_trajectory_search WHERE "
TOOL: Final = "tools ? %s"
FAILED: Final = (
    "tools ? %s AND jsonb_path_exists(steps,"
    " '$[*] ? (@.action.tool == $tool && @.result.success == false)', jsonb_build_object('tool', %s::text))"
)
WORDS: Final = "words @@ websearch_to_tsquery('simple', %s)"
ERRORS: Final = "error_words @@ websearch_to_tsquery('simple', %s)"

Rows = QuerySet[TrajectoryRecord]


def tool_used(rows: Rows, tool: str) -> Rows:
    """Trajectories of which a step used the tool."""
    return _found(rows, TOOL, tool)


def tool_failed(rows: Rows, tool: str) -> Rows:
    """Trajectories of which a step used the tool in vain."""
    return _found(rows, FAILED, tool, tool)


def steps_with(rows: Rows, words: str) -> Rows:
    """Trajectories whose steps have all the words: in results, in parameters, or in the agent's texts."""
    return _found(rows, WORDS, words)


def step_errors_with(rows: Rows, words: str) -> Rows:
    """Trajectories of which the errors of steps have all the words."""
    return _found(rows, ERRORS, words)


def _found(rows: Rows, condition: str, *values: Any) -> Rows:
    return rows.filter(Condition(f"{FOUND}{condition})", values))
