"""kill -9 of the worker that encrypts what is stored."""

from __future__ import annotations

from typing import Any

import pytest

from agentcore_site.encryption.reencryption import rows_by_version
from agentcore_site.encryption.services import key_rotate
from agentcore_site.jobs.models import Job, Status
from agentcore_site.tenancy.actors import Actor
from experiences.models import Agent, TrajectoryRecord
from experiences.trajectories.storage import trajectories_write
from tests.support.rows import group, lived_run, owner_of
from tests.support.workers import Fleet, eventually

TABLE = "experiences_trajectory"
ROWS = 8_000


@pytest.mark.django_db(transaction=True)
@pytest.mark.thorough(reason="workers are killed, and started again")
def test_rows_are_read_after_a_kill_and_another_worker_goes_on(
    adam: Any, operator: Actor, agent: Agent, acme: Any, fleet: Fleet
) -> None:
    owner = owner_of(lived_run(operator, agent, iterations=1, queries=1, rollouts=1))
    for iteration in range(1, ROWS // 500 + 1):
        trajectories_write(owner, group(iteration, 0, 500).trajectories)
    total = ROWS + 1
    job = key_rotate(Actor.of(adam), acme)
    killed = fleet.worker()
    counts: dict[int, int] = eventually(
        lambda: under_way if 0 < (under_way := rows_by_version(acme.pk)[TABLE]).get(1, 0) < total else None, every=0.02
    )
    fleet.kill(killed)
    assert counts[1] + counts[0] == total
    assert all(row.steps for row in TrajectoryRecord.objects.iterator())
    fleet.beat()
    fleet.worker()
    eventually(lambda: Job.objects.get(pk=job.pk).status == Status.COMPLETED)
    assert rows_by_version(acme.pk)[TABLE] == {1: total}
    assert all(row.steps for row in TrajectoryRecord.objects.iterator())
