"""A job whose model is away, hangs or is slow stops when a person requests it, and then pays for nothing more."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from agentcore_site.jobs import lifecycle
from agentcore_site.jobs.lease import MustPause
from agentcore_site.jobs.models import Job, Reason, Status
from agentcore_site.jobs.services import job_cancel, job_pause, job_resume
from agentcore_site.lib.errors import Conflict
from agentcore_site.tenancy.actors import Actor
from budgets.ledger.reconciliation import differences
from budgets.models import LedgerEntry
from budgets.services import price_set
from evaluation.services import evaluation_start
from experiences.agents.consent import recording_check
from experiences.agents.services.agents import agent_archive, agent_create
from experiences.agents.services.endpoints import endpoint_create
from experiences.models import Agent
from experiences.playbooks.services.evolutions import evolution_queue
from experiences.rollouts.captured import SampledTokens
from experiences.rollouts.types import RolloutKey, Scenario, Step, Trajectory, TrajectoryGroup
from tests.support.llm_server import ModelServer
from tests.support.pages import html
from tests.support.playbooks import lived, playbook_of
from tests.support.playbooks import model_agent as clerk_of
from tests.support.running import run_to_end
from tests.support.workers import eventually
from training.learners.weights import WeightsLearner
from training.models import TrainingRun
from training.policies.weights import WeightsPolicy
from training.schema import GRPOConfig
from training.services.runs import run_start

pytestmark = pytest.mark.django_db(transaction=True)

ROWS = [{"query": f"What is {n} + 1?", "expected_outcome": {"answer": n + 1}} for n in range(40)]
CONFIG = {
    "n_iterations": 50,
    "batch_size": 2,
    "n_trajectories_per_query": 2,
    "eval_samples": 1,
    "max_budget_usd": 1,
    "max_concurrent_rollouts": 4,
    "selection_share": 0.1,
    "selection_least": 1,
    "context": {"propose": False, "gate_samples": 1, "gate_steps": 1, "accept_weak_gate": True},
}
# A job that does not notice the request waits as long as its calls may: five minutes.
FAULTS = {
    "is well": {},
    "refuses": {"error_503": 1.0},
    "hangs": {"hang": 1.0},
    "hangs up": {"reset": 1.0},
}
OTHERS = pytest.mark.thorough(reason="more ways in which a model is away")
AT_MOST = 60.0  # seconds until the job has stopped, on a busy machine


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(brain=lambda _: "Answer: 1", latency_s=0.02, prices={"small": (1_000_000, 1_000_000)}) as running:
        yield running


@pytest.fixture
def model_agent(adam: Any, server: ModelServer) -> Agent:
    actor = Actor(adam)
    home = adam.memberships.get().organization
    price_set(actor, model="small", organization=home, input_micros=1_000_000, output_micros=1_000_000)
    options = {"max_retries": 1_000, "retry_s": 300, "timeout_s": 300}
    endpoint = endpoint_create(
        actor, name="local", base_url=server.base_url, model="small", api_key="sk-test-123", options=options
    )
    return agent_create(
        actor, name="Adder", runtime="llm", philosophy="cot", environment="dataset", endpoint=endpoint, max_tokens=40
    )


def stopped(job: Job, server: ModelServer, request: Callable[[], Any], *, fault: str, answered: int = 6) -> float:
    """Runs the job, makes its model fail in its midst, then requests a stop. Returns the seconds until it stopped."""
    asked_at = 0.0

    def person() -> None:
        nonlocal asked_at
        try:
            eventually(lambda: server.owed.answered >= answered, why="the job's calls are answered")
            server.faults = FAULTS[fault]
            acts = sum(server.acted.values())
            eventually(lambda: fault == "is well" or sum(server.acted.values()) > acts, why="a call meets the fault")
            request()
            asked_at = time.monotonic()
        finally:
            connection.close()

    asking = threading.Thread(target=person)
    asking.start()
    run_to_end(job)
    asking.join()
    return time.monotonic() - asked_at


@pytest.mark.parametrize(
    ("action", "fault"),
    [
        ("cancel", "refuses"),
        ("cancel", "hangs"),
        ("pause", "hangs"),
        *(
            pytest.param(action, fault, marks=OTHERS)
            for action in ("cancel", "pause")
            for fault in ("is well", "hangs up")
        ),
        pytest.param("pause", "refuses", marks=OTHERS),
    ],
)
def test_a_request_acts_while_the_model(
    operator: Actor, model_agent: Agent, server: ModelServer, action: str, fault: str
) -> None:
    run = run_start(operator, agent=model_agent, rows=ROWS, config=CONFIG)
    move = job_cancel if action == "cancel" else job_pause
    took = stopped(run.job, server, lambda: move(operator, run.job), fault=fault)
    job = Job.objects.get(id=run.job_id)
    assert (job.status, job.status_reason) == (
        Status.CANCELLED if action == "cancel" else Status.PAUSED, Reason.USER
    )  # fmt: skip
    print(f"{action}, the model {fault}: {took:.2f} s")
    assert took < AT_MOST
    entries = LedgerEntry.objects.filter(job_id=job.id).count()
    requests = sum(server.acted.values())
    if action == "pause":
        server.faults = {}
        job_resume(operator, job)
        job_cancel(operator, job)
    run_to_end(job)
    assert (LedgerEntry.objects.filter(job_id=job.id).count(), sum(server.acted.values())) == (entries, requests)
    assert differences() == []


def test_an_evaluation_stops_while_its_model_hangs(operator: Actor, model_agent: Agent, server: ModelServer) -> None:
    run = run_start(operator, agent=model_agent, rows=ROWS, config=CONFIG | {"n_iterations": 1})
    assert run_to_end(run.job).status == Status.COMPLETED
    evaluation = evaluation_start(operator, run=run)
    server.accounts.clear()
    took = stopped(evaluation.job, server, lambda: job_cancel(operator, evaluation.job), fault="hangs")
    assert Job.objects.get(id=evaluation.job_id).status == Status.CANCELLED and took < AT_MOST
    assert differences() == []


def test_an_evolution_stops_while_the_model_of_its_questions_hangs(
    adam: Any, operator: Actor, server: ModelServer
) -> None:
    agent = clerk_of(Actor(adam), server)
    playbook = playbook_of(operator, agent)
    lived(operator, agent, 3)
    job = evolution_queue(operator, playbook).job
    took = stopped(job, server, lambda: job_cancel(operator, job), fault="hangs", answered=0)
    assert Job.objects.get(id=job.id).status == Status.CANCELLED and took < AT_MOST
    assert sum(server.acted.values()) == 1 and differences() == []


def test_an_update_of_weights_stops_while_its_model_server_hangs() -> None:
    class Hangs:
        """A trainer whose server takes the rollouts and never answers."""

        def __getattr__(self, call: str) -> Any:
            return lambda *_, **__: asyncio.sleep(600)

    class Requested(Exception): ...

    def check() -> None:
        raise Requested

    def rollout(number: int) -> Trajectory:
        step = Step({}, {}, {}, sampled=SampledTokens((1, 2), (3,), (-0.5,)).packed(None))
        return Trajectory(RolloutKey(1, 0, number), "q", [step], number > 0, float(number), float(number))

    config = GRPOConfig.model_validate({"learner": "weights", "credit": "uniform"})
    setup: Any = SimpleNamespace(weights_trainer=Hangs(), config=config, seed=1, rollouts=SimpleNamespace(check=check))
    state: Any = SimpleNamespace(policy=WeightsPolicy(), value=None)
    groups = [TrajectoryGroup(Scenario(0, "q"), [rollout(0), rollout(1)])]
    with pytest.raises(Requested):
        asyncio.run(WeightsLearner().learn(setup, state, groups, None, 1))


@pytest.fixture
def queued(operator: Actor, model_agent: Agent) -> TrainingRun:
    return run_start(operator, agent=model_agent, rows=ROWS, config=CONFIG)


def test_an_archived_agents_jobs_end_and_no_other_does(
    adam: Any, operator: Actor, model_agent: Agent, agent: Agent, queued: TrainingRun
) -> None:
    other = run_start(operator, agent=agent)
    Job.objects.filter(id=queued.job_id).update(status=Status.PAUSED, status_reason=Reason.WAITING_FOR_LLM)
    agent_archive(Actor(adam), model_agent)
    assert Job.objects.get(id=queued.job_id).status == Status.CANCELLED
    assert Job.objects.get(id=other.job_id).status == Status.QUEUED
    queued.agent.refresh_from_db()
    with pytest.raises(Conflict, match="is archived"):
        evaluation_start(operator, run=queued)
    Job.objects.filter(id=queued.job_id).update(status=Status.RUNNING, requested="cancel")  # its worker has to end it
    with pytest.raises(Conflict, match="is archived, so its jobs do not continue"):
        job_resume(operator, queued.job)
    with pytest.raises(MustPause, match="archived"):
        recording_check(model_agent.id)


def test_a_page_says_what_was_requested_and_what_the_job_waits_for(
    client: Any, olivia: Any, operator: Actor, queued: TrainingRun
) -> None:
    until = timezone.now() + timedelta(seconds=30)
    Job.objects.filter(id=queued.job_id).update(status=Status.RUNNING, lease_until=until)
    lifecycle.cancel(operator, queued.job)
    client.force_login(olivia)
    head = html(client.get(f"/jobs/{queued.pk}/")).split('id="head"')[1]
    assert "Cancelling" in head and "requested" in head and "waits for its worker" in head
    assert 'id="resume"' in head  # it withdraws the request
    assert "Cancelling" in html(client.get("/jobs/"))
    lifecycle.pause(operator, queued.job)
    assert "Pausing" in html(client.get("/jobs/"))
