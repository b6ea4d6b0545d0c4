"""Trajectories of agents elsewhere, stored once by their own name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from datetime import date, datetime
from typing import Final
from uuid import UUID

from django.db import connection, transaction
from django.utils import timezone

from agentcore_site.ids import derived
from evaluation.events.models import RECEIVED, ReceivedTrajectory
from experiences.agents.consent import recording_hold
from experiences.models import Agent
from experiences.rollouts.types import Trajectory
from experiences.trajectories.storage import TrajectoryScope, partition_ensure, trajectories_replace, trajectories_write

SCENARIOS: Final = 2**31 - 1  # of a column


def received_scope(agent: Agent) -> TrajectoryScope:
    """The scope of an agent's received trajectories: they count as one job, which has no row."""
    month = timezone.now().date().replace(day=1)
    return TrajectoryScope(derived(agent.pk, RECEIVED), agent.organization_id, agent.pk, month, purpose=RECEIVED)


def in_turn(organizations: Iterable[UUID]) -> None:
    """Serialises receiving for these organisations until the transaction ends: a trajectory and its reward may come at
    once by two ways, and neither would see the other. All locks are taken in one order, which avoids deadlocks."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended('received ' || id, 0)) FROM unnest(%s::text[]) id",
            [sorted({str(organization) for organization in organizations})],
        )


def timed(trajectory: Trajectory, came: datetime) -> Trajectory:
    """A trajectory without a time of its own gets the time when it ``came``: no page shows a period in 1970."""
    if trajectory.started_at <= 0:
        trajectory.started_at = came.timestamp()
        for step in trajectory.steps:
            step.timestamp = step.timestamp or trajectory.started_at
    return trajectory


@transaction.atomic
def trajectories_receive(
    agent: Agent, found: Mapping[str, Callable[[int], Trajectory]], again: Collection[str] = ()
) -> int:
    """Stores trajectories by their names in the organisation. Of known ones those to be written ``again`` replace what
    is stored, and others are left out. Each is made for its scenario. Returns the number of new ones.

    Raises:
        Conflict: the agent may not be recorded.
    """
    in_turn([agent.organization_id])
    recording_hold([agent])
    mine = ReceivedTrajectory.objects.filter(organization_id=agent.organization_id, trajectory_id__in=list(found))
    known = {row.trajectory_id: row for row in mine}
    _write_again(agent, [row for name, row in known.items() if name in again and row.agent_id == agent.pk], found)
    new = [
        ReceivedTrajectory(organization_id=agent.organization_id, agent=agent, trajectory_id=name)
        for name in found
        if name not in known
    ]
    rows = ReceivedTrajectory.objects.bulk_create(new)
    scope = received_scope(agent)
    made = [timed(found[row.trajectory_id](row.pk % SCENARIOS), row.received_at) for row in rows]
    partition_ensure(scope.month)
    trajectories_write(scope, made)
    for row, trajectory in zip(rows, made, strict=True):
        row.record_id, row.month = scope.id_of(trajectory.key), scope.month
    ReceivedTrajectory.objects.bulk_update(rows, ["record_id", "month"])
    return len(rows)


def _write_again(
    agent: Agent, rows: Iterable[ReceivedTrajectory], found: Mapping[str, Callable[[int], Trajectory]]
) -> None:
    by_month: dict[date, list[Trajectory]] = defaultdict(list)
    for row in rows:
        if row.month is not None:
            by_month[row.month].append(timed(found[row.trajectory_id](row.pk % SCENARIOS), row.received_at))
    for month, made in by_month.items():
        trajectories_replace(replace(received_scope(agent), month=month), made)
