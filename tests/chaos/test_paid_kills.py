"""kill -9 of real workers at random moments, with the settings that are shipped: what was kept is never paid for twice,
and a kill costs at most what was under way. What a sweep does half a minute after a kill is done at once here; with the
leases' own time, and more kills, it is ``make bench ARGS=paid``."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from agentcore_site.jobs import wakeup
from agentcore_site.jobs.models import Job, Status
from agentcore_site.tenancy.actors import Actor
from budgets.ledger.reconciliation import differences
from budgets.models import Reservation
from evaluation.models import EvaluationRun
from evaluation.services import evaluation_start
from experiences.agents.services.agents import agent_update
from experiences.models import Agent, Question, TrajectoryRecord
from experiences.playbooks.services.evolutions import evolution_queue
from tests.chaos.test_database import PRICE, WORLD, learning_agent
from tests.support.llm_server import ModelServer
from tests.support.playbooks import add, insight, lived, model_agent, playbook_of, reflecting, suggesting
from tests.support.simulated_model import simulated_server
from tests.support.workers import Fleet, eventually
from training.schema import GRPOConfig
from training.services.runs import run_start

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.thorough(reason="kills at random moments"),
]

SHIPPED = {"JOB_LEASE_SECONDS": "30", "JOB_SWEEP_SECONDS": "5"}
CONCURRENCY = GRPOConfig.model_fields["max_concurrent_rollouts"].default
# Calls that a kill may cost, from what may be begun and not yet written. A rollout begins only when one before it is
# written (experiences/trajectories/rollout_writer.py), so that the time of a write adds none; it has one call here. As
# many questions are asked at once as rollouts, each written before the next; one has a second call where its
# answer had to be repaired.
UNDER_WAY = {"evaluation": CONCURRENCY, "training": CONCURRENCY, "reflection": 2 * CONCURRENCY, "evolution": 2}
REFLECTOR = "You say what the last executions of an agent teach"  # begins that question
LATENCY = 0.25  # seconds of a model's answer
CONFIG = {
    "n_iterations": 6,
    "batch_size": 4,
    "n_trajectories_per_query": 4,
    "eval_interval": 3,
    "eval_samples": 2,
    "max_budget_usd": 5.0,
    "early_stopping": {"enabled": False},
    "checkpoint_interval": 2,
    "context": {"epochs": 2, "ship_confidence": 0.7},
    "seed": 3,
}


@pytest.fixture
def worker(fleet: Fleet) -> Fleet:
    fleet.worker(concurrency=1, **SHIPPED)
    return fleet


def killed_in(job: Job, purpose: str, rng: random.Random, payer: Job | None = None) -> bool:
    """kill -9 of the process that holds the job, at a random moment while a call for that purpose is under way. False
    where the job ended before. ``payer``: the job whose budget pays, where that is another."""
    under_way = Reservation.objects.filter(job_id=(payer or job).id, purpose=purpose, state="held")
    before = set(under_way.values_list("key", flat=True))  # those of workers that died stay until they expire

    def begun_or_over() -> bool:
        job.refresh_from_db()
        return job.ended or under_way.exclude(key__in=before).exists()

    eventually(begun_or_over, seconds=60, every=0.02, why=f"a call for {purpose}")
    time.sleep(rng.uniform(0.0, LATENCY))
    job.refresh_from_db()
    if job.status != Status.RUNNING or job.lease_until is None:
        return False
    os.kill(int(job.worker.rsplit(":", 1)[1]), signal.SIGKILL)
    time.sleep(0.1)  # what it had sent to the database has arrived
    Job.objects.filter(id=job.id).update(lease_until="2000-01-01T00:00:00Z")
    assert wakeup.wake(job.id, job.attempt, job.priority)
    return True


def ended(job: Job) -> Job:
    def is_over() -> bool:
        job.refresh_from_db()
        return job.ended

    eventually(is_over, seconds=120, why="the job ends")
    assert (job.status, job.error) == (Status.COMPLETED, "")
    return job


def kept_calls(job: Job) -> int:
    """Calls whose answers are stored: one for each step of a rollout, and those of questions."""
    rollouts = TrajectoryRecord.objects.filter(job_id=job.id)
    assert not rollouts.exclude(error="").exists()
    steps = sum(rollouts.values_list("n_steps", flat=True))
    return steps + sum(Question.objects.filter(job_id=job.id).values_list("calls", flat=True))


def test_a_kill_in_training_validation_reflection_or_evaluation_costs_only_calls_in_flight(
    operator: Actor, adam: Any, worker: Fleet
) -> None:
    rng = random.Random(random.random())
    with simulated_server(WORLD, prices={"small": PRICE}) as server:
        server.latency_s = LATENCY
        run = run_start(operator, agent=learning_agent(Actor(adam), server), rows=WORLD.rows(80, 7), config=CONFIG)
        stages = ["evaluation", "training", "reflection", "training", "reflection", "evaluation"]
        hit = [stage for stage in stages if killed_in(run.job, stage, rng)]
        ended(run.job)
        lost = server.owed.answered - kept_calls(run.job)
        assert len(hit) >= 4 and 0 <= lost <= sum(UNDER_WAY[stage] for stage in hit), (hit, lost)
        assert server.owed.requests <= Reservation.objects.filter(job_id=run.job_id).count()

        # A run that ships what it began with has no proof of its own.
        final = EvaluationRun.objects.filter(run=run, final=True).first()
        eventually(lambda: final is None or Job.objects.get(id=final.job_id).ended, why="the proof is over")
        before = server.owed.answered
        proof = evaluation_start(operator, run=run, split="selection", samples=8).job
        kills = 0
        while kills < 2 and not proof.ended:
            kills += killed_in(proof, "evaluation", rng, payer=run.job)
        ended(proof)
        lost = server.owed.answered - before - kept_calls(proof)
        assert kills >= 1 and 0 <= lost <= kills * CONCURRENCY, (kills, lost)
    assert differences() == []


@pytest.fixture
def clerk(adam: Any) -> Iterator[tuple[Agent, ModelServer]]:
    lesson = "Name the depot when a parcel is late, so that the customer can ask there."
    reflected, suggested = reflecting(insight(lesson)), suggesting(add(lesson, confidence=0.85))
    brain = lambda asked: reflected if REFLECTOR in asked[0]["content"] else suggested  # noqa: E731
    with ModelServer(brain=brain, prices={"small": PRICE}, latency_s=LATENCY) as server:
        yield agent_update(Actor(adam), model_agent(Actor(adam), server), ace_reflection_rounds=2), server


def test_a_kill_in_an_evolution_costs_at_most_the_one_question_that_was_under_way(
    operator: Actor, clerk: tuple[Agent, ModelServer], worker: Fleet
) -> None:
    agent, server = clerk
    playbook = playbook_of(operator, agent)
    lived(operator, agent, 3)
    job = evolution_queue(operator, playbook).job
    kills = sum(killed_in(job, "evolution", random.Random(random.random())) for _ in range(3))
    ended(job)
    assert kept_calls(job) == 3  # two rounds of reflection, of which the second changes nothing, and the suggestions
    assert server.owed.requests <= 3 + kills * UNDER_WAY["evolution"]
    assert differences() == []
