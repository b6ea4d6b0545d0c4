"""kill -9, twenty times: nothing is lost, nothing is doubled, and the policy ends where it would have."""

from __future__ import annotations

import os
import signal
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from django.db import DatabaseError, connection, transaction

from agentcore_site.jobs import lifecycle
from agentcore_site.jobs.models import ENDED, Job, Status
from agentcore_site.tenancy.actors import Actor
from experiences.models import Agent, TrajectoryRecord
from tests import factories
from tests.support.rounds import rounds
from tests.support.running import SMALL_POOL, run_to_end
from tests.support.workers import Fleet, eventually
from training.checkpoint_bytes import checkpoint_load
from training.models import Iteration, TrainingRun
from training.services import checkpoints
from training.services.run_setup import setup_of
from training.services.runs import run_start

pytestmark = pytest.mark.django_db(transaction=True)

JOBS, KILLS = 4, rounds(4, 20)
CONFIG = {
    "n_iterations": 80,
    "eval_samples": 1,
    "eval_interval": 50,
    "checkpoint_interval": 10,
    "early_stopping": {"enabled": False},
    "seed": 11,
}


def final_weights(run: TrainingRun) -> Any:
    latest = checkpoints.latest(run)
    assert latest is not None and latest.iteration == CONFIG["n_iterations"]
    return setup_of(run).state_of(checkpoint_load(latest)).policy.weights


def kill_holder(job_id: Any) -> bool:
    """kill -9 of the very process that holds the job. False if no process did."""
    job = Job.objects.get(id=job_id)
    if job.lease_until is None or job.status != Status.RUNNING:
        return False
    try:
        os.kill(int(job.worker.rsplit(":", 1)[1]), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.rounds
@pytest.mark.thorough(reason="workers are killed, and started again")
def test_kills_change_nothing(operator: Actor, agent: Agent, acme: Any, fleet: Fleet) -> None:
    """Of four jobs of one seed: while one waits for the lease of its dead worker, another is killed."""
    undisturbed = run_start(operator, agent=agent, environment_options=SMALL_POOL, config=CONFIG)
    run_to_end(undisturbed.job)

    others = [factories.AgentFactory(organization=acme, created_by=operator.user) for _ in range(JOBS)]
    whole_worker = fleet.worker(concurrency=2)
    fleet.beat()
    runs = [run_start(operator, agent=one, environment_options=SMALL_POOL, config=CONFIG) for one in others]
    due = {run.job_id: 1 for run in runs}  # the iteration from which on a job is killed next
    kills, deadline = 0, time.monotonic() + 400
    under_way = TrainingRun.objects.filter(job_id__in=due).exclude(job__status__in=ENDED)
    while kills < KILLS and time.monotonic() < deadline:
        states = list(under_way.values_list("job_id", "iteration"))
        for job_id, iteration in states:
            if kills == KILLS or iteration < due[job_id]:
                continue
            if kills % 7 == 6:  # now and then the whole worker, parent and children
                fleet.kill(whole_worker)
                whole_worker = fleet.worker(concurrency=2)
            elif not kill_holder(job_id):
                continue
            kills += 1
            # Let it get somewhere each time: the last kills must still find it running.
            due[job_id] = iteration + CONFIG["n_iterations"] * JOBS // (KILLS + 3 * JOBS)  # type: ignore[operator]
        if not states:
            break
        time.sleep(0.1)
    assert kills == KILLS, f"only {kills} kills landed before the runs ended"
    for run in runs:
        eventually(lambda run=run: Job.objects.get(id=run.job_id).ended, seconds=120, why="to end after the last kill")
        is_as_if_undisturbed(run, undisturbed)


def is_as_if_undisturbed(run: TrainingRun, undisturbed: TrainingRun) -> None:
    job = Job.objects.get(id=run.job_id)
    assert job.status == Status.COMPLETED, job.error
    assert list(Iteration.objects.filter(run=run).order_by("number").values_list("number", flat=True)) == list(
        range(1, CONFIG["n_iterations"] + 1)  # type: ignore[operator]
    )
    mine = TrajectoryRecord.objects.filter(job_id=run.job_id)
    keys = list(mine.values_list("iteration", "scenario", "rollout"))
    reference = TrajectoryRecord.objects.filter(job_id=undisturbed.job_id)
    assert len(keys) == len(set(keys)) == reference.count()
    assert set(keys) == set(reference.values_list("iteration", "scenario", "rollout"))
    np.testing.assert_array_equal(final_weights(run), final_weights(undisturbed))


@pytest.mark.thorough(reason="half a minute of waiting for a lease")
def test_a_stopped_worker_that_wakes_up_after_its_lease_writes_nothing(
    operator: Actor, agent: Agent, fleet: Fleet
) -> None:
    fleet.worker()
    fleet.beat()
    run = run_start(operator, agent=agent, environment_options=SMALL_POOL, config=CONFIG | {"n_iterations": 150})
    eventually(lambda: Iteration.objects.filter(run=run, number__gte=5).exists(), why="the first iterations")
    sleeper = eventually(lambda: _stopped_holder(run.job_id), why="a worker stopped while it holds the job")
    try:
        stopped_at = Job.objects.get(id=run.job_id).attempt  # before the other one is there: it may end the job at once
        fleet.worker()  # a second worker takes over once the lease has run out
        eventually(lambda: Job.objects.get(id=run.job_id).attempt > stopped_at, seconds=90, why="a new claim")
    finally:
        os.kill(sleeper, signal.SIGCONT)
    eventually(lambda: Job.objects.get(id=run.job_id).ended, seconds=120, why="the job to end")
    numbers = list(Iteration.objects.filter(run=run).order_by("number").values_list("number", flat=True))
    assert numbers == list(range(1, 151))
    assert TrajectoryRecord.objects.filter(job_id=run.job_id).count() == 150 * 16


@pytest.mark.thorough(reason="programs that wait half a minute for a lease")
@pytest.mark.parametrize("holds", [True, False], ids=["with the job", "with its message"])
def test_a_frozen_workers_job_is_taken_up_within_a_lease_and_a_sweep(
    operator: Actor, agent: Agent, fleet: Fleet, holds: bool
) -> None:
    """At shipped settings. One that freezes between two slices takes the next message with it."""
    shipped = {"JOB_LEASE_SECONDS": "30", "JOB_SWEEP_SECONDS": "5"}
    worker = fleet.worker(concurrency=2, **shipped)
    fleet.beat(**shipped)
    run = run_start(operator, agent=agent, environment_options=SMALL_POOL, config=CONFIG | {"n_iterations": 2000})
    eventually(lambda: Iteration.objects.filter(run=run, number__gte=5).exists(), why="the first iterations")
    frozen = eventually(
        lambda: _stopped_holder(run.job_id) if holds else _stopped_idle(worker.pid, run.job_id), why="one is stopped"
    )
    try:
        attempt, began = Job.objects.get(id=run.job_id).attempt, time.monotonic()
        eventually(lambda: Job.objects.get(id=run.job_id).attempt > attempt, seconds=90, why="a new claim")
        assert time.monotonic() - began <= 45
    finally:
        os.kill(frozen, signal.SIGCONT)
    lifecycle.cancel(None, Job.objects.get(id=run.job_id))


def _stopped_idle(parent: int, job_id: Any) -> int:
    """A child of the worker that does not hold the job, stopped."""
    holder = _holder(job_id)
    children = [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
    idle = [pid for pid in children if pid != holder]
    if not holder or not idle:
        return 0
    os.kill(idle[0], signal.SIGSTOP)
    return idle[0]


def _stopped_holder(job_id: Any) -> int:
    """The process that holds the job, stopped in the middle of its slice; 0 if it was between two slices, where its
    sleep would prove nothing: it holds no lease then, and its parent may have taken the next message already."""
    holder = _holder(job_id)
    if not holder:
        return 0
    os.kill(holder, signal.SIGSTOP)
    time.sleep(0.2)  # what it had sent to the database when it fell asleep has arrived
    if _holder(job_id) == holder:
        return holder
    os.kill(holder, signal.SIGCONT)
    return 0


def _holder(job_id: Any) -> int:
    job = Job.objects.get(id=job_id)
    held = job.lease_until is not None and job.status == Status.RUNNING
    return int(job.worker.rsplit(":", 1)[1]) if held else 0


def test_a_session_that_hangs_in_a_transaction_is_ended_and_frees_its_rows(transactional_db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SHOW idle_in_transaction_session_timeout")
        assert cursor.fetchone()[0] == "30s"
        cursor.execute("SET idle_in_transaction_session_timeout = '200ms'")
    with pytest.raises(DatabaseError), transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        time.sleep(1.0)
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    connection.close()


def test_a_worker_that_freezes_in_the_middle_of_a_copy_does_not_hold_its_job_for_ever(
    operator: Actor, agent: Agent, transactional_db: None
) -> None:
    run = run_start(operator, agent=agent, environment_options=SMALL_POOL, config=CONFIG)
    params = connection.get_connection_params() | {"cursor_factory": psycopg.Cursor}
    with (
        closing(psycopg.connect(**params)) as frozen,
        closing(psycopg.connect(**params | {"application_name": "pg_restore"})) as restoring,
    ):
        frozen.execute("SET agentcore.scope = '*'")
        frozen.execute("UPDATE jobs_job SET attempt = attempt WHERE id = %s", [run.job_id])
        copies = [one.cursor().copy("COPY experiences_trajectory_other (id) FROM STDIN") for one in (frozen, restoring)]
        for copy in copies:
            copy.__enter__()
        began = time.monotonic()
        assert lifecycle.claim(run.job_id) is None  # and it does not wait for ever
        assert time.monotonic() - began < 3 * lifecycle.LOCK_SECONDS
        assert lifecycle.hung_writes_end(60) == 0
        assert eventually(lambda: lifecycle.hung_writes_end(0.5), why="the frozen session is found") == 1
        assert eventually(lambda: lifecycle.claim(run.job_id), why="its row is free") is not None
        copies[1].__exit__(None, None, None)  # a person who restores a backup has all the time that it takes
        restoring.commit()
        frozen.pgconn.finish()
