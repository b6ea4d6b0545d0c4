"""Reads of trajectories and their groups, scoped to the actor."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Any, Final, NamedTuple, TypedDict

import orjson
from django.db.models import Q, QuerySet, TextField
from django.db.models.functions import Cast

from agentcore_site.jobs.selectors import as_uuid
from agentcore_site.lib.errors import Missing
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require_somewhere
from experiences.models import GroupRecord, TrajectoryRecord

FEW: Final = 8  # iterations, of which each is asked for with its own range of queries


def trajectories_visible(actor: Actor) -> QuerySet[TrajectoryRecord]:
    """Raises:
    Forbidden: the actor's role does not read them."""
    require_somewhere(actor, "data.view")
    return TrajectoryRecord.objects.visible_to(actor)


def trajectory_get(actor: Actor, trajectory_id: Any) -> TrajectoryRecord:
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


class TrajectoryPlace(NamedTuple):
    """A trajectory's place in its job."""

    id: uuid.UUID
    purpose: str
    job_id: uuid.UUID
    iteration: int
    scenario: int
    rollout: int


class LearnedFigures(TypedDict):
    """The figures of a trajectory after its update; ``step_advantages`` is empty where steps have none of their own."""

    advantage: float
    normalized_reward: float
    step_advantages: list[float]


def advantages_for(rows: Sequence[TrajectoryRecord]) -> dict[uuid.UUID, LearnedFigures]:
    """The update's figures of each trajectory, by its id: advantage, normalised reward, advantage per step.

    One query a job. Trajectories whose group was not updated yet are left out.
    """
    return advantages_at([TrajectoryPlace(r.id, r.purpose, r.job_id, r.iteration, r.scenario, r.rollout) for r in rows])


def advantages_at(places: Sequence[TrajectoryPlace]) -> dict[uuid.UUID, LearnedFigures]:
    """The same by their places."""
    by_job: dict[uuid.UUID, list[TrajectoryPlace]] = {}
    for place in places:
        if place.purpose == "training":
            by_job.setdefault(place.job_id, []).append(place)
    found: dict[uuid.UUID, LearnedFigures] = {}
    for job_id, mine in by_job.items():
        groups = _groups(job_id, mine)
        for place in mine:
            here = groups.get((place.iteration, place.scenario))
            if here is not None and place.rollout < len(here[0]):
                advantages, normalized, steps = here
                found[place.id] = {
                    "advantage": advantages[place.rollout],
                    "normalized_reward": normalized[place.rollout],
                    "step_advantages": steps[place.rollout] if steps else [],
                }
    return found


def _groups(job_id: uuid.UUID, places: Sequence[TrajectoryPlace]) -> dict[tuple[int, int], tuple[Any, Any, Any]]:
    """Advantages, normalised rewards and advantages of steps of the groups at these places."""
    by_iteration: dict[int, set[int]] = {}
    for place in places:
        by_iteration.setdefault(place.iteration, set()).add(place.scenario)
    rows = GroupRecord.objects.filter(job_id=job_id)
    if len(by_iteration) <= FEW:  # a batch of an export goes from the end of one iteration into the next
        near = (Q(iteration=n, scenario__range=(min(of), max(of))) for n, of in by_iteration.items())
        rows = rows.filter(reduce(or_, near))
    else:
        scenarios = set().union(*by_iteration.values())
        rows = rows.filter(iteration__in=by_iteration, scenario__range=(min(scenarios), max(scenarios)))
    names = "iteration", "scenario", "advantages", "normalized_rewards"
    found = rows.annotate(steps=Cast("step_advantages", TextField())).values_list(*names, "steps")
    return {(one[0], one[1]): (one[2], one[3], orjson.loads(one[4])) for one in found}
