"""Reads of trajectories and their groups, scoped to the actor."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from django.db.models import QuerySet

from agentcore_site.jobs.selectors import as_uuid
from agentcore_site.lib.errors import Missing
from experiences.models import GroupRecord, TrajectoryRecord


def trajectories_visible(actor: Any) -> QuerySet[TrajectoryRecord]:
    return TrajectoryRecord.objects.visible_to(actor)


def trajectory_get(actor: Any, trajectory_id: Any) -> TrajectoryRecord:
    found = trajectories_visible(actor).filter(id=as_uuid(trajectory_id, "trajectory")).first()
    if found is None:
        raise Missing(f"There is no trajectory {trajectory_id}.")
    return found


def group_of(row: TrajectoryRecord) -> GroupRecord | None:
    """The group of a training trajectory; None before its update, and for evaluations."""
    if row.purpose != "training":
        return None
    return GroupRecord.objects.filter(job_id=row.job_id, iteration=row.iteration, scenario=row.scenario).first()


def siblings(row: TrajectoryRecord) -> QuerySet[TrajectoryRecord]:
    """The rollouts of the same query in the same iteration, arm and line, in order."""
    return TrajectoryRecord.objects.filter(
        month=row.month,
        job_id=row.job_id,
        purpose=row.purpose,
        arm=row.arm,
        line=row.line,
        iteration=row.iteration,
        scenario=row.scenario,
    ).order_by("rollout")


def advantages_for(rows: Sequence[TrajectoryRecord]) -> dict[uuid.UUID, dict[str, Any]]:
    """What the update made of each trajectory, by its id: advantage, normalised reward, advantage per step.

    One query for all. Trajectories whose group was not updated yet are left out.
    """
    wanted = {(row.job_id, row.iteration, row.scenario) for row in rows if row.purpose == "training"}
    groups: dict[tuple[uuid.UUID, int, int], GroupRecord] = {}
    for job_id in {key[0] for key in wanted}:
        iterations = {key[1] for key in wanted if key[0] == job_id}
        for group in GroupRecord.objects.filter(job_id=job_id, iteration__in=iterations):
            groups[(group.job_id, group.iteration, group.scenario)] = group
    found = {}
    for row in rows:
        here = groups.get((row.job_id, row.iteration, row.scenario))
        if here is not None and row.purpose == "training" and row.rollout < len(here.advantages):
            found[row.id] = {
                "advantage": here.advantages[row.rollout],
                "normalized_reward": here.normalized_rewards[row.rollout],
                "step_advantages": here.step_advantages[row.rollout] if here.step_advantages else [],
            }
    return found
