"""A window of a trajectory's steps, cut out by the database: a trace of 30,000 steps opens as fast as one of ten."""

from __future__ import annotations

import json
from typing import Any, Final

from django.db import connection

from agentcore_site.encryption.columns import opened
from agentcore_site.jobs.selectors import as_uuid
from agentcore_site.lib.errors import Missing
from agentcore_site.tenancy.actors import Actor
from experiences.models import TrajectoryRecord
from experiences.trajectories.selectors import trajectories_visible

WINDOW: Final = 100  # steps that are shown at once

CUT = (
    "SELECT CASE jsonb_typeof(steps) WHEN 'array' THEN jsonb_path_query_array("
    "steps, '$[$first to $last]', jsonb_build_object('first', %s::int, 'last', %s::int)) ELSE steps END"
    " FROM experiences_trajectory WHERE month = %s AND id = %s"
)


def trajectory_light(actor: Actor, trajectory_id: Any) -> TrajectoryRecord:
    """The row without its steps, which may be many megabytes.

    Raises:
        Missing: there is no such trajectory, or it belongs to another organisation.
    """
    rows = trajectories_visible(actor).filter(id=as_uuid(trajectory_id, "trajectory"))
    found = rows.defer("steps").first()
    if found is None:
        raise Missing(f"There is no trajectory {trajectory_id}.")
    return found


def steps_between(row: TrajectoryRecord, first: int, last: int) -> list[dict[str, Any]]:
    """Steps ``first`` to ``last`` (both included, from 0); fewer where the trajectory ends."""
    if first < 0 or last < first:
        return []
    with connection.cursor() as cursor:
        cursor.execute(CUT, [first, last, row.month, row.id])
        found = cursor.fetchone()
    if found is None:
        return []
    steps = json.loads(found[0]) if isinstance(found[0], str) else found[0]
    if isinstance(steps, str):  # encrypted: the database can't cut it
        whole = opened("experiences_trajectory", "steps", row.organization_id, row.id, steps)
        steps = whole[first : last + 1]
    return list(steps)
