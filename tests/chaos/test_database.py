"""PostgreSQL ends sessions, or has no room: a job is taken up again and ends as it would have, and never fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from django.db import connection
from django.test import Client

from agentcore_site.audit.models import AuditEvent
from agentcore_site.jobs import tasks
from agentcore_site.jobs.models import Job, Status
from agentcore_site.jobs.tasks import advance
from agentcore_site.tenancy.actors import Actor
from budgets.ledger.reconciliation import differences
from budgets.services import price_set
from evaluation.models import EvaluationResult, EvaluationRun
from evaluation.tasks import sweep
from experiences.agents.services.agents import agent_create
from experiences.agents.services.endpoints import endpoint_create
from experiences.models import Agent, GroupRecord, Playbook, Question, TrajectoryRecord
from experiences.playbooks.selectors import sections_of
from experiences.playbooks.services.evolutions import evolution_queue
from tests import factories
from tests.support.backends import each_once, lives_through, sessions_ended
from tests.support.llm_server import ModelServer
from tests.support.owner import as_owner
from tests.support.playbooks import add, lived, model_agent, playbook_of, suggesting
from tests.support.running import SMALL_POOL, run_to_end
from tests.support.simulated_model import simulated_server
from tests.support.world import World
from training.checkpoint_bytes import checkpoint_load
from training.models import Iteration, TrainingRun
from training.services import checkpoints
from training.services.run_setup import setup_of
from training.services.runs import run_start

WORLD = World(7)
PRICE = (150_000, 600_000)
PAID = {
    "n_iterations": 2,
    "batch_size": 4,
    "n_trajectories_per_query": 4,
    "eval_interval": 1,
    "eval_samples": 2,
    "max_concurrent_rollouts": 16,
    "max_budget_usd": 5.0,
    "early_stopping": {"enabled": False},
    "checkpoint_interval": 1,
    "context": {"epochs": 2, "ship_confidence": 0.7},
    "seed": 3,
}

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.thorough(reason="kills at random moments"),
]

CONFIG = {
    "n_iterations": 4,
    "eval_samples": 1,
    "eval_interval": 2,
    "checkpoint_interval": 2,
    "early_stopping": {"enabled": False},
    "seed": 11,
}


def final_weights(run: TrainingRun) -> Any:
    latest = checkpoints.latest(run)
    assert latest is not None
    return setup_of(run).state_of(checkpoint_load(latest)).policy.weights


def rollouts(job: Job) -> list[Any]:
    """Every column of a job's trajectories but the times."""
    fields = ("arm", "line", "iteration", "scenario", "rollout", "query", "outcome", "reward", "n_steps", "error")
    rows = TrajectoryRecord.objects.filter(job_id=job.id)
    return sorted(rows.values_list(*fields), key=str)


def evaluation_of(run: TrainingRun) -> EvaluationRun:
    return EvaluationRun.objects.select_related("job").get(run=run, final=True)


def results(evaluation: EvaluationRun) -> list[Any]:
    fields = ("arm", "line", "scenario", "outcomes", "successes", "rewards", "steps")
    return sorted(EvaluationResult.objects.filter(evaluation=evaluation).values_list(*fields), key=str)


def test_a_session_that_ends_in_any_statement_of_training_or_evaluation_changes_nothing(
    operator: Actor, agent: Agent, acme: Any
) -> None:
    calm = run_start(operator, agent=agent, environment_options=SMALL_POOL, config=CONFIG)
    run_to_end(calm.job)
    run_to_end(evaluation_of(calm).job)
    other = factories.AgentFactory(organization=acme, created_by=operator.user)
    run = run_start(operator, agent=other, environment_options=SMALL_POOL, config=CONFIG)
    with sessions_ended(each_once()) as ender:
        job = lives_through(run.job, ender)
    assert (job.status, job.error) == (Status.COMPLETED, "")
    assert any(one.startswith("copy: ") for one in ender.ended)
    assert any(GroupRecord._meta.db_table in one for one in ender.ended)
    assert rollouts(job) == rollouts(calm.job)
    groups = GroupRecord.objects.filter(job_id=job.id)
    assert groups.count() == GroupRecord.objects.filter(job_id=calm.job_id).count() > 0
    assert list(Iteration.objects.filter(run=run).order_by("number").values_list("number", flat=True)) == [1, 2, 3, 4]
    np.testing.assert_array_equal(final_weights(run), final_weights(calm))

    sweep()  # the message that asks for the evaluation may be among those that were lost
    with sessions_ended(each_once()) as ender:
        job = lives_through(evaluation_of(run).job, ender)
    assert (job.status, job.error) == (Status.COMPLETED, "")
    assert rollouts(job) == rollouts(evaluation_of(calm).job)
    assert results(evaluation_of(run)) == results(evaluation_of(calm))


@pytest.fixture
def world(settings: Any) -> Iterator[ModelServer]:
    settings.JOB_SLICE_SECONDS = settings.JOB_ROUND_SECONDS = 600
    with simulated_server(WORLD, prices={"small": PRICE}) as running:
        yield running


def learning_agent(actor: Actor, server: ModelServer) -> Agent:
    organization = actor.user.memberships.get().organization
    price_set(actor, model="small", organization=organization, input_micros=PRICE[0], output_micros=PRICE[1])
    endpoint = endpoint_create(
        actor, name="local", base_url=server.base_url, model="small", api_key="sk-test-123", options={"max_retries": 0}
    )
    return agent_create(
        actor, name="Learner", runtime="llm", philosophy="cot", environment="dataset", endpoint=endpoint, max_tokens=200
    )


@pytest.fixture
def learner(adam: Any, world: ModelServer) -> Agent:
    return learning_agent(Actor(adam), world)


def test_a_session_that_ends_in_any_statement_of_paid_training_pays_for_nothing_twice(
    operator: Actor, learner: Agent, world: ModelServer
) -> None:
    run = run_start(operator, agent=learner, rows=WORLD.rows(80, 7), config=PAID)
    with sessions_ended(each_once()) as ender:
        lives_through(run.job, ender)
    kept = TrajectoryRecord.objects.filter(job_id=run.job_id)
    assert Iteration.objects.filter(run=run).count() == PAID["n_iterations"]
    assert kept.filter(purpose="training").count() == 2 * 4 * 4 and not kept.exclude(error="").exists()
    calls = sum(Question.objects.filter(job_id=run.job_id).values_list("calls", flat=True))
    # Each session that ended may have cost what was under way, at most all that ran at once.
    assert world.owed.requests <= kept.count() + calls + len(ender.ended) * 16
    assert differences() == []


def test_a_session_that_ends_in_any_statement_of_an_evolution_changes_nothing(
    operator: Actor, adam: Any, settings: Any
) -> None:
    settings.TRUSTED_SOURCES = frozenset({"executions"})  # what is applied by itself is the most that is written
    lesson = "Name the depot when a parcel is late, so that the customer can ask there."
    with ModelServer(brain=lambda _: suggesting(add(lesson, confidence=0.85)), prices={"small": PRICE}) as server:
        playbook = playbook_of(operator, model_agent(Actor(adam), server))
        lived(operator, playbook.agent, 3)
        evolution = evolution_queue(operator, playbook)
        with sessions_ended(each_once()) as ender:
            job = lives_through(evolution.job, ender)
    assert (job.status, job.error) == (Status.COMPLETED, "")
    assert [one.content for one in sections_of(Playbook.objects.get(id=playbook.id))].count(lesson) == 1
    assert differences() == []
    calls = sum(Question.objects.filter(job=job).values_list("calls", flat=True))
    assert calls == 1


FULL = (
    "experiences_trajectory",
    "experiences_grouprecord",
    "training_iteration",
    "training_policycheckpoint",
    "jobs_jobevent",
    "evaluation_evaluationresult",
)


@contextmanager
def no_room_in(table: str) -> Iterator[None]:
    """PostgreSQL's own words for a full disk, for each row that is written to the table."""
    with as_owner(), connection.cursor() as cursor:
        cursor.execute(
            "CREATE OR REPLACE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full';"
            " END $$"
        )
        cursor.execute(f"CREATE TRIGGER no_room BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION no_room()")
    try:
        yield
    finally:
        with as_owner(), connection.cursor() as cursor:
            cursor.execute(f"DROP TRIGGER no_room ON {table}")


@pytest.mark.parametrize("table", FULL)
def test_a_full_disk_never_fails_a_job(operator: Actor, agent: Agent, settings: Any, table: str) -> None:
    """More turns than a job that kills its workers may have; it goes on as soon as there is room."""
    settings.JOB_MAX_CRASHES = 1
    run = run_start(operator, agent=agent, environment_options=SMALL_POOL, config=CONFIG)
    job = run.job if table != "evaluation_evaluationresult" else evaluation_of_trained(run)
    with no_room_in(table):
        for _ in range(3):
            assert advance(str(job.id)) == "database away"
            tasks.sweep()
            job.refresh_from_db()
            assert job.status in {Status.QUEUED, Status.RUNNING} and job.lease_until is None
    assert run_to_end(job).status == Status.COMPLETED


def evaluation_of_trained(run: TrainingRun) -> Job:
    run_to_end(run.job)
    return evaluation_of(run).job


def said(client: Client, job: Job, choose: Callable[[str, int], bool], *, method: str = "post") -> dict[str, Any]:
    """The text of the 503 where the database goes away in that statement of the request."""
    with sessions_ended(choose) as ender:
        ender.armed = True
        path = f"/api/v1/training-jobs/{job.id}" + ("/pause" if method == "post" else "")
        response = getattr(client, method)(path, content_type="application/json")
        ender.armed = False
    connection.close()
    assert len(ender.ended) == 1 and response.status_code == 503, (response.status_code, response.content)
    body: dict[str, Any] = response.json()
    assert body["request_id"] == response["X-Request-Id"]
    job.refresh_from_db()
    return body


def test_the_text_of_a_503_is_true(operator: Actor, agent: Agent) -> None:
    job = run_start(operator, agent=agent, environment_options=SMALL_POOL, config=CONFIG).job
    client = Client(raise_request_exception=False)
    client.force_login(operator.user)
    first: list[str] = []

    def once(wanted: str) -> Callable[[str, int], bool]:
        first.clear()

        def choose(statement: str, _: int) -> bool:
            hit = wanted in statement and not first
            first.extend([statement] if hit else [])
            return hit

        return choose

    body = said(client, job, once('FROM "training_trainingrun"'), method="get")
    assert "Nothing was changed" in body["detail"]
    # Before the commit: all of it is rolled back.
    body = said(client, job, once("INSERT INTO"))
    assert "Nothing was changed" in body["detail"] and job.status == Status.QUEUED
    assert not AuditEvent.objects.filter(request_id=body["request_id"]).exists()
    # The commit was sent and its answer is lost: it may have been done, and here it was.
    body = said(client, job, once("answer of commit"))
    assert "Nothing" not in body["detail"] and "may have been done" in body["detail"]
    assert body["request_id"] in body["detail"]
    assert job.status == Status.PAUSED
    assert AuditEvent.objects.get(request_id=body["request_id"]).action == "job.pause_requested"
