"""kill -9 of a worker in the middle of updates of weights: the job goes on from what was committed, pays for no update
of a committed iteration again, and ends with the weights of an undisturbed job."""

from __future__ import annotations

import os
import random
import signal
import time
from typing import Any

import pytest

from agentcore_site.jobs.models import Job, Status
from agentcore_site.tenancy.actors import Actor
from budgets.ledger.reconciliation import differences
from budgets.ledger.settling import charge_expired
from budgets.models import LedgerEntry, Reservation
from experiences.models import TrajectoryRecord
from tests.budgets.support import expire
from tests.support.model_server_process import ModelServerProcess
from tests.support.running import run_to_end
from tests.support.workers import Fleet, eventually
from tests.training.weights.conftest import PRICE, agent_at
from tests.training.weights.test_learning import weights_of
from training.models import TrainingRun
from training.services.runs import run_start

pytestmark = [
    pytest.mark.thorough(reason="a model is trained"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow(reason="a model is trained"),
]

GPU_USD_PER_HOUR = 3.6  # 1,000 micro-dollars a second
UPDATE_CALLS = 3  # of one update: log-probabilities, gradient, Adam's step
KILLS, IN_UPDATES = 8, 4  # in all at least, and of those that a training call did not survive
ITERATIONS = 24
UPDATE_SECONDS = 0.3
# Longer than the two seconds of other tests: the model server may take both processors.
LEASE = {"JOB_LEASE_SECONDS": "5"}
# Every third answer or so is right by chance, so that no iteration is without something to learn.
ROWS = [{"query": f"vowel {number}", "expected_outcome": {"regex": "[aeiou]"}} for number in range(40)]
CONFIG: dict[str, Any] = {
    "learner": "weights",
    "n_iterations": ITERATIONS,
    "batch_size": 4,
    "n_trajectories_per_query": 4,
    "learning_rate": 0.002,
    # One answer at a time: those that are drawn together come out otherwise in their last bits, by who is beside whom.
    "max_concurrent_rollouts": 1,
    "eval_interval": 100,
    "eval_samples": 1,
    "early_stopping": {"enabled": False},
    "max_budget_usd": 20,
    "seed": 5,
}


def training_calls(job: Job) -> Any:
    return Reservation.objects.filter(job_id=job.id, purpose="training", rollout="")


def killed(job: Job, rng: random.Random, *, in_update: bool) -> bool:
    """kill -9 of the process that holds the job, at a random moment of an update or of anything else. False where no
    process held it by then."""
    if in_update:
        before = set(training_calls(job).filter(state="held").values_list("key", flat=True))

        def begun_or_over() -> bool:
            job.refresh_from_db()
            return job.ended or training_calls(job).filter(state="held").exclude(key__in=before).exists()

        eventually(begun_or_over, seconds=90, every=0.01, why="a training call is under way")
        time.sleep(rng.uniform(0.0, UPDATE_SECONDS))
    else:
        time.sleep(rng.uniform(0.0, 3.0))
    job.refresh_from_db()
    if job.status != Status.RUNNING or job.lease_until is None:
        return False
    try:
        os.kill(int(job.worker.rsplit(":", 1)[1]), signal.SIGKILL)
    except ProcessLookupError:  # the lease of the one before still runs
        return False
    return True


def figures_of(run: TrainingRun) -> list[tuple[int, dict[str, Any]]]:
    """The measurements of each update; the job's spending by then depends on its kills."""
    rows = run.iterations.order_by("number").values_list("number", "metrics")
    return [(number, {name: one for name, one in m.items() if name != "spent_micros"}) for number, m in rows]


def rollouts_of(run: TrainingRun) -> list[Any]:
    rows = TrajectoryRecord.objects.filter(job_id=run.job_id, purpose="training")
    result = rows.order_by("iteration", "scenario", "rollout").values_list("iteration", "scenario", "rollout", "steps")
    return [(*key, [step["sampled"] for step in steps]) for *key, steps in result]


def test_kills_in_the_middle_of_updates_change_neither_the_weights_nor_what_an_update_costs(
    operator: Actor, adam: Any, model_server: ModelServerProcess, fleet: Fleet
) -> None:
    rng = random.Random(random.random())
    agent = agent_at(Actor(adam), model_server, endpoint_options={"gpu_usd_per_hour": GPU_USD_PER_HOUR})
    undisturbed = run_start(operator, agent=agent, rows=ROWS, config=CONFIG)
    assert run_to_end(undisturbed.job).status == Status.COMPLETED, undisturbed.job.error
    calls = training_calls(undisturbed.job)
    assert calls.count() == UPDATE_CALLS * ITERATIONS

    run = run_start(operator, agent=agent, rows=ROWS, config=CONFIG)
    job = run.job
    fleet.worker(concurrency=1, **LEASE)
    fleet.beat(**LEASE)
    kills = 0
    while (kills < KILLS or training_calls(job).filter(state="held").count() < IN_UPDATES) and not job.ended:
        kills += killed(job, rng, in_update=rng.random() < 0.7)
        job.refresh_from_db()
    lost = training_calls(job).filter(state="held")
    assert kills >= KILLS and lost.count() >= IN_UPDATES, (kills, lost.count())

    def is_over() -> bool:
        job.refresh_from_db()
        return job.ended

    eventually(is_over, seconds=180, why="the job ends")
    assert (job.status, job.error) == (Status.COMPLETED, "")
    # No gap and no double, and each iteration went on from the committed state: rollouts, figures and weights are those
    # of the job that was left in peace, to the last bit.
    assert [number for number, _ in figures_of(run)] == list(range(1, ITERATIONS + 1))
    assert rollouts_of(run) == rollouts_of(undisturbed)
    assert figures_of(run) == figures_of(undisturbed)
    assert weights_of(run).digest == weights_of(undisturbed).digest != ""

    # Each call is paid once: what was answered by what it took, what a kill left open when its hold runs out. That may
    # be the call under way and the one before it, whose settlement waits some moments for company.
    n_lost = lost.count()
    assert n_lost <= 2 * kills
    made = training_calls(job)
    settled = LedgerEntry.objects.filter(reservation_id__in=made.values("id"), kind="settle")
    assert settled.values("reservation_id").distinct().count() == settled.count() == made.count() - n_lost
    # Beside those of the iterations, only updates that a kill cut were begun.
    assert UPDATE_CALLS * ITERATIONS <= made.count() <= UPDATE_CALLS * (ITERATIONS + kills)
    holds = {one.id: one.amount_micros for one in lost}
    expire(*(one.key for one in lost))
    charge_expired()
    charges = LedgerEntry.objects.filter(reservation_id__in=holds, kind="charge")
    paid = dict(charges.values_list("reservation_id", "cost_micros"))
    assert charges.count() == n_lost == len(paid) and all(paid[at] <= amount for at, amount in holds.items())
    tokens = sum(settled.values_list("input_tokens", flat=True))
    assert sum(settled.values_list("cost_micros", flat=True)) >= tokens * PRICE / 1_000_000
    assert not made.filter(state="held").exists() and differences() == []
