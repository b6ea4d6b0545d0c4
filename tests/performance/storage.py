"""P2 and P7: trajectories written, and what they take on disk; ratios to a bare COPY of the same rows."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from dataclasses import replace
from datetime import date
from statistics import median

from django.db import connection, transaction

from agentcore_site.encryption.envelope import KEY_BYTES
from agentcore_site.encryption.holders import LOCAL, holder
from agentcore_site.encryption.models import DataKey
from agentcore_site.encryption.services import key_rotate
from agentcore_site.ids import uuid7
from agentcore_site.tenancy.models import Organization
from experiences.rollouts.collect import RolloutLimits, RolloutPlan, collect
from experiences.rollouts.runtimes.action import ActionRuntime
from experiences.rollouts.types import RolloutKey, Trajectory
from experiences.trajectories import storage
from tests.performance.table import Figure, at_least, at_most
from tests.support.owner import as_owner
from tests.support.running import run_to_end
from training.config.validation import parse_config
from training.data.pools import environment_pools
from training.learners.action import ActionLearner
from training.trainer import TrainerSetup, steps

ROWS = 10_000
BATCH = 1_000
TRAINED = 40  # iterations: success is about one half then
MONTH = date(2020, 1, 1)


def trajectories() -> list[Trajectory]:
    """Real rollouts of a policy in the middle of its training: 2,000 of them, each five times."""
    pools = environment_pools("reasoning_gym", {}, 1)
    config, _ = parse_config({})
    setup = TrainerSetup(config, 1, pools.environment, pools.train, pools.selection, ActionLearner())
    state = setup.fresh_state()
    for report in steps(setup, state):
        if report.iteration == TRAINED:
            break
    played = asyncio.run(
        collect(
            [(RolloutKey(0, s.index, sample), s) for s in pools.train for sample in range(10)],
            RolloutPlan(
                environment=pools.environment,
                runtime=ActionRuntime(state.policy, 20, 1.0),
                reward=setup.reward(),
                seed=1,
                limits=RolloutLimits(),
            ),
            kept={},
            keep=lambda one: None,
        )
    )
    return [
        replace(one, key=RolloutKey(copy, one.key.scenario, one.key.rollout))
        for copy in range(ROWS // len(played))
        for one in played
    ]


def encrypting() -> storage.TrajectoryScope:
    """A scope whose organisation encrypts."""
    name = f"encrypting-{uuid7().hex[-12:]}"
    organization = Organization.objects.create(name=name, slug=name)
    sealed = holder(LOCAL).seal(os.urandom(KEY_BYTES))
    DataKey.objects.create(organization=organization, version=1, holder=LOCAL, sealed=sealed, active=True)
    return owner(organization.pk)


def owner(organization: uuid.UUID | None = None) -> storage.TrajectoryScope:
    return storage.TrajectoryScope(uuid7(), organization or uuid7(), uuid7(), MONTH)


def ours(rows: list[Trajectory], whose: storage.TrajectoryScope | None = None, batch: int = BATCH) -> float:
    """Seconds of the product's own path: objects to JSON to COPY, in transactions of 1,000."""
    whose = whose or owner()
    began = time.perf_counter()
    for first in range(0, len(rows), batch):
        with transaction.atomic():
            storage.trajectories_write(whose, rows[first : first + batch])
    return time.perf_counter() - began


def bare(rows: list[Trajectory]) -> float:
    """Seconds of a bare COPY of the same rows, serialised before the clock starts, into the same table."""
    lines = b"".join(storage._lines(owner(), rows))
    began = time.perf_counter()
    command = f"COPY {storage.partition_of(MONTH)} ({storage.COLUMNS}) FROM STDIN"
    with transaction.atomic(), connection.cursor() as cursor, cursor.copy(command) as copy:
        copy.write(lines)
    return time.perf_counter() - began


def size_of_partition() -> int:
    """Bytes of its rows and of their queries, indexes and all."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_total_relation_size('experiences_trajectory_2020_01')"
            " + pg_total_relation_size('experiences_query')"
        )
        return int(cursor.fetchone()[0])


def emptied() -> None:
    with connection.cursor() as cursor, as_owner():
        cursor.execute("TRUNCATE experiences_trajectory_2020_01, experiences_query")


def writes() -> list[Figure]:
    with transaction.atomic():
        storage.partition_ensure(MONTH)
    rows = trajectories()
    measured: dict[str, list[float]] = {"ours": [], "bare": []}
    size = 0
    for _ in range(3):
        emptied()
        measured["ours"].append(ours(rows))
        size = size_of_partition()
        emptied()
        measured["bare"].append(bare(rows))
    emptied()
    mine, raw = median(measured["ours"]), median(measured["bare"])
    steps = sum(len(one.steps) for one in rows) / len(rows)
    return [
        at_least(
            "P2",
            f"trajectory writes, share of bare COPY's speed ({steps:.1f} steps each)",
            100 * raw / mine,
            50,
            "%",
            digits=0,
        ),
        at_least("P2", "trajectory writes", ROWS / mine, 100, "rows/s", digits=0),
        at_most(
            "P7", "10,000 trajectories on disk, indexes and all (target 100 MB)", size / 2**20, 100, "MB", digits=1
        ),
        at_most("P7", "10,000 trajectories on disk, the goal", size / 2**20, 20, "MB", digits=1),
    ]


def encrypted() -> list[Figure]:
    """S7: the same rows with and without encryption, in turn, by COPY of 500."""
    with transaction.atomic():
        storage.partition_ensure(MONTH)
    rows, whose = trajectories(), encrypting()
    seconds: dict[bool, list[float]] = {True: [], False: []}
    size: dict[bool, int] = {}
    for _ in range(5):
        for sealed in (False, True):
            emptied()
            seconds[sealed].append(ours(rows, whose if sealed else None, 500))
            size[sealed] = size_of_partition()
    began = time.perf_counter()
    run_to_end(key_rotate(None, Organization.objects.get(pk=whose.organization_id)))
    moving = time.perf_counter() - began
    emptied()
    taken = median(seconds[True]) / median(seconds[False])
    return [
        at_most("S7", "COPY of 500 encrypted trajectories, of the time in plain", taken, 1.5, "times"),
        at_most("S7", "10,000 encrypted on disk, of the size in plain", size[True] / size[False], 1.25, "times"),
        at_least("S7", "rows brought under another key by the job", ROWS / moving, 2_000, "rows/s", digits=0),
        at_most("S7", "10,000 encrypted on disk", size[True] / 2**20, 27, "MB", digits=1),
    ]
