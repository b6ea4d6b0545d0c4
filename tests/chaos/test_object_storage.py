"""The bucket goes away, or falls silent, after a random number of bytes: of uploads, of downloads, in every kind of job
that stores objects."""

from __future__ import annotations

import hashlib
import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from typing import Any, Final

import boto3
import orjson
import pytest
from botocore.config import Config
from django.core.files.storage import default_storage
from django.db import connection

from agentcore_site import env
from agentcore_site.jobs import lifecycle
from agentcore_site.jobs.models import ENDED, Job, Reason, Status
from agentcore_site.jobs.tasks import advance
from agentcore_site.tenancy.actors import Actor
from budgets.ledger.reconciliation import differences
from budgets.models import Reservation
from experiences.models import Agent, TrajectoryArchive, TrajectoryExport
from experiences.trajectories import storage
from experiences.trajectories.archive.restoring import archived_jobs, job_restore
from experiences.trajectories.archive.rows import marks
from experiences.trajectories.archive.services import retention_start
from experiences.trajectories.exports import execution
from experiences.trajectories.exports.services import export_queue
from experiences.trajectories.exports.stored import stored_part
from experiences.trajectories.storage import TrajectoryScope, trajectories_write
from tests.chaos.test_database import PRICE, WORLD, learning_agent
from tests.chaos.test_paid_kills import CONFIG, kept_calls
from tests.support.proxy import Proxy
from tests.support.rounds import rounds
from tests.support.rows import group, owner_of, queued_run, trajectory
from tests.support.running import SMALL, SMALL_POOL
from tests.support.s3_server import BUCKET, s3_server
from tests.support.simulated_model import simulated_server
from training.checkpoint_bytes import checkpoint_load
from training.models import PolicyCheckpoint
from training.services import checkpoints
from training.services.runs import run_start

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.thorough(reason="faults at random moments"),
]

LARGE: Final = 20 * 2**20 + 7  # bytes: three parts of an upload
SLICES: Final = 400  # of a job, at most
MONTH: Final = date(2020, 1, 1)


@pytest.fixture
def draw() -> random.Random:
    seed = int(os.environ.get("SEED", 0)) or random.randrange(10**6)
    print("seed", seed)
    return random.Random(seed)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with s3_server(monkeypatch) as address:
        yield address


@pytest.fixture
def way(bucket: str, settings: Any) -> Iterator[Proxy]:
    """The site's way to the bucket. A silent one is given up after half a second, at shipped settings after a
    minute."""
    with Proxy(bucket) as found:
        entry = env.bucket_storage(BUCKET, found.url)
        quick = Config(connect_timeout=0.5, read_timeout=0.5, retries={"max_attempts": 1})
        entry["OPTIONS"]["client_config"] = entry["OPTIONS"]["client_config"].merge(quick)
        settings.STORAGES = settings.STORAGES | {"default": entry}
        yield found


def fault(way: Proxy, draw: random.Random, size: int) -> None:
    """From a random byte on, of the next ``size``, the bucket is away, or silent."""
    draw.choice((way.cut_after, way.freeze_after))(draw.randrange(size))


@contextmanager
def faults(way: Proxy, draw: random.Random, size: int) -> Iterator[list[bool]]:
    """Faults one after the other, each for a moment. Yields a list with an entry for each."""
    ended, met = threading.Event(), list[bool]()

    def go_on() -> None:
        while not ended.is_set():
            fault(way, draw, size)
            while way.is_open and not ended.wait(0.01):
                continue
            met.append(True)
            ended.wait(draw.uniform(0.1, 1.5))
            way.heal()

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield met
    finally:
        ended.set()
        thread.join()
        way.heal()


def to_its_end(job: Job) -> int:
    """Slices of a job, whose waits are over at once. Returns how often it waited for the storage."""
    waits = 0
    for _ in range(SLICES):
        outcome = advance(str(job.id))
        job.refresh_from_db()
        if job.status in ENDED:
            break
        if outcome == "paused":
            assert job.status_reason == Reason.STORAGE_AWAY and "can't be reached" in job.error, job.error
            waits += 1
            Job.objects.filter(id=job.id).update(not_before=job.created_at)
            assert lifecycle.resume_waiting() == 1
    assert (job.status, job.error) == (Status.COMPLETED, "")
    return waits


def objects(bucket: str) -> dict[str, bytes]:
    client = boto3.client("s3", endpoint_url=bucket)
    found = client.list_objects_v2(Bucket=BUCKET).get("Contents", [])
    return {one["Key"]: client.get_object(Bucket=BUCKET, Key=one["Key"])["Body"].read() for one in found}


@pytest.mark.rounds
def test_an_upload_in_parts_that_breaks_off_at_any_byte_leaves_a_whole_checkpoint(
    bucket: str, way: Proxy, draw: random.Random, operator: Actor, agent: Agent
) -> None:
    run = run_start(operator, agent=agent, environment_options=SMALL_POOL, config=SMALL)
    made: dict[Any, bytes] = {}
    for iteration in range(1, rounds(8, 40) + 1):
        data = draw.randbytes(LARGE)
        fault(way, draw, LARGE + 5_000)
        row = checkpoints.checkpoint_save(run, iteration=iteration, data=data, metrics={}, prune=False)
        made[row.pk] = data
        way.heal()
        assert checkpoint_load(row) == data and bool(row.path) != bool(row.data)
    moved = 0
    while moved < PolicyCheckpoint.objects.filter(data__isnull=False).count():
        fault(way, draw, LARGE * 3)
        checkpoints.checkpoints_move()
        way.heal()
    kept = list(PolicyCheckpoint.objects.filter(pk__in=made))
    assert len(kept) == len(made) and all(checkpoint_load(row) == made[row.pk] for row in kept)
    # An object without a row is whole too: the answer to its last part was lost.
    assert set(map(len, objects(bucket).values())) == {LARGE}


def test_a_paid_run_pays_nothing_twice_and_goes_on_while_its_bucket_comes_and_goes(
    way: Proxy, draw: random.Random, operator: Actor, adam: Any, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "DATABASE_LIMIT", 1_000)  # so that a small policy's state is a large one
    settings.JOB_SLICE_SECONDS = 0  # an iteration each: each begins with the reading of a checkpoint
    with simulated_server(WORLD, prices={"small": PRICE}) as server:
        server.latency_s = 0.05
        config = CONFIG | {"checkpoint_interval": 1}
        run = run_start(operator, agent=learning_agent(Actor(adam), server), rows=WORLD.rows(80, 7), config=config)
        with faults(way, draw, 40_000) as met:
            waits = to_its_end(run.job)
        print(f"{len(met)} faults, {waits} waits")
        assert len(met) >= 3
        assert server.owed.answered == kept_calls(run.job)
        assert server.owed.requests == Reservation.objects.filter(job_id=run.job_id).count()
    assert differences() == []
    assert all(checkpoint_load(row) for row in PolicyCheckpoint.objects.filter(run=run))


def test_an_export_has_each_row_once_while_its_bucket_comes_and_goes(
    bucket: str, way: Proxy, draw: random.Random, operator: Actor, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE experiences_trajectory")
    run = queued_run(operator, agent)
    Job.objects.filter(id=run.job_id).update(status=Status.CANCELLED)
    trajectories_write(owner_of(run), [trajectory(n, 0, 0, f"question {n}", True) for n in range(3_000)])
    monkeypatch.setattr(execution, "PART_BYTES", 200_000)
    job = export_queue(operator, {"job": str(run.job_id)}, format="jsonl").job
    with faults(way, draw, 600_000) as met:
        waits = to_its_end(job)
    print(f"{len(met)} faults, {waits} waits")
    export = TrajectoryExport.objects.get(pk=job.pk)
    seen = []
    for part in export.parts.all():
        data = b"".join(stored_part(export, part).read(0, part.size))
        assert hashlib.sha256(data).hexdigest() == part.sha256
        seen += [orjson.loads(line)["iteration"] for line in data.splitlines()]
    assert met and seen == list(range(3_000)) == list(range(export.rows)) and export.parts.count() > 3
    assert len(objects(bucket)) == export.parts.count()  # no half part is left


def test_a_month_is_archived_whole_while_its_bucket_comes_and_goes(
    way: Proxy, draw: random.Random, operator: Actor, agent: Agent, acme: Any
) -> None:
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE experiences_trajectory")
    storage.partition_make(MONTH)
    for _ in range(4):
        run = queued_run(operator, agent)
        Job.objects.filter(id=run.job_id).update(status=Status.CANCELLED)
        whose = TrajectoryScope(run.job_id, agent.organization_id, agent.pk, MONTH)
        for iteration in range(10):
            made: Any = group(iteration, 0, 50)
            trajectories_write(whose, made.trajectories)
    before = marks(MONTH)
    with faults(way, draw, 100_000) as met:
        waits = to_its_end(retention_start(None, acme))
    print(f"{len(met)} faults, {waits} waits")
    assert met and TrajectoryArchive.objects.count() == 1
    for one in archived_jobs():
        job_restore(one)
    assert marks(MONTH) == before and default_storage.exists(TrajectoryArchive.objects.get().manifest)
