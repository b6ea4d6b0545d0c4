"""The opt-out of collection holds for jobs that were there before it: they stop, store nothing more, and can go on."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection

from agentcore_site.jobs import lifecycle
from agentcore_site.jobs.models import Job, JobEvent, Status
from agentcore_site.jobs.services import job_resume
from agentcore_site.jobs.tasks import run_slice
from agentcore_site.lib.errors import Conflict
from agentcore_site.tenancy.actors import Actor
from evaluation.models import EvaluationResult, EvaluationRun
from evaluation.services import evaluation_start
from evaluation.tasks import sweep
from experiences.agents.services.agents import agent_update
from experiences.models import Agent, ContextDelta, GroupRecord, Question, TrajectoryRecord
from experiences.playbooks.services.evolutions import evolution_fault, evolution_queue
from tests.support.llm_server import ModelServer
from tests.support.playbooks import PRICE, add, lived, model_agent, playbook_of, suggesting
from tests.support.running import SMALL, SMALL_POOL, run_to_end, slices_of
from training.models import Iteration, PolicyCheckpoint, TrainingRun
from training.services.runs import run_start

pytestmark = pytest.mark.django_db(transaction=True)

STOPPED = (Status.PAUSED, "not_recorded")
STORED = (TrajectoryRecord, GroupRecord, Iteration, EvaluationResult, EvaluationRun, Question, ContextDelta)


def stored() -> list[int]:
    return [model.objects.count() for model in STORED]


def state(job: Job) -> tuple[str, str]:
    job.refresh_from_db()
    return Status(job.status), job.status_reason


def started(operator: Actor, agent: Agent, **config: Any) -> TrainingRun:
    return run_start(operator, agent=agent, environment_options=SMALL_POOL, config=SMALL | config)


def one_slice(job: Job) -> None:
    claimed = lifecycle.claim(job.id)
    assert claimed is not None
    run_slice(claimed)


def test_a_queued_job_stores_nothing_and_gives_a_reason_for_its_stop(operator: Actor, agent: Agent) -> None:
    run, before = started(operator, agent), stored()
    agent_update(operator, agent, collects=False)
    job = run_to_end(run.job)
    assert state(job) == STOPPED and "Allow it there and resume" in job.error
    assert stored() == before and not PolicyCheckpoint.objects.exists()


def test_a_paused_job_without_consent_stops_again_when_resumed_and_goes_on_with_consent(
    operator: Actor, agent: Agent, settings: Any
) -> None:
    run = started(operator, agent)
    with slices_of(settings, 0):
        one_slice(run.job)
    lifecycle.pause(operator, run.job)
    before = stored()
    assert before[0] > 0
    agent_update(operator, agent, collects=False)
    job_resume(operator, run.job)
    assert state(run_to_end(run.job)) == STOPPED and stored() == before
    agent_update(operator, agent, collects=True)
    job_resume(operator, run.job)
    assert run_to_end(run.job).status == Status.COMPLETED
    assert Iteration.objects.filter(run=run).count() == SMALL["n_iterations"]


def test_a_job_at_work_has_its_next_write_refused_and_loses_nothing(
    operator: Actor, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    from training.services import execution

    run = started(operator, agent)
    reached: list[list[int]] = []
    apply = execution.TrainingSlice.apply

    def opted_out_meanwhile(slice: execution.TrainingSlice, report: Any) -> None:
        if report.iteration == 3 and not reached:
            agent_update(operator, agent, collects=False)
            reached.append(stored())
        apply(slice, report)

    monkeypatch.setattr(execution.TrainingSlice, "apply", opted_out_meanwhile)
    assert state(run_to_end(run.job)) == STOPPED
    assert [stored()] == reached and Iteration.objects.filter(run=run).count() == 2
    agent_update(operator, agent, collects=True)
    job_resume(operator, run.job)
    assert run_to_end(run.job).status == Status.COMPLETED
    assert list(Iteration.objects.values_list("number", flat=True)) == list(range(1, 13))


def test_no_evaluation_is_requested_after_the_end_until_recording_is_allowed(operator: Actor, agent: Agent) -> None:
    run = started(operator, agent)
    job = run_to_end(run.job)
    EvaluationRun.objects.all().delete()
    Job.objects.filter(kind="evaluation").delete()
    agent_update(operator, agent, collects=False)
    assert job.status == Status.COMPLETED and sweep() == 0
    with pytest.raises(Conflict, match="may not be recorded"):
        evaluation_start(operator, run=run)
    assert not EvaluationRun.objects.exists()
    agent_update(operator, agent, collects=True)
    assert sweep() == 1


def test_the_last_checkpoint_asks_for_no_evaluation(
    operator: Actor, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    from training.services import execution

    run = started(operator, agent)
    finished = execution.TrainingSlice._finished

    def opted_out_at_the_end(slice: execution.TrainingSlice, reason: str) -> Any:
        agent_update(operator, agent, collects=False)
        return finished(slice, reason)

    monkeypatch.setattr(execution.TrainingSlice, "_finished", opted_out_at_the_end)
    assert run_to_end(run.job).status == Status.COMPLETED
    assert not EvaluationRun.objects.exists()


def test_an_evaluation_stops_between_its_parts_and_goes_on(
    operator: Actor, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    from evaluation import execution

    run = started(operator, agent)
    run_to_end(run.job)
    evaluation = EvaluationRun.objects.get(run=run)
    reached: list[list[int]] = []
    play = execution.EvaluationSlice.play

    def opted_out_meanwhile(slice: execution.EvaluationSlice, *args: Any, **progress: float) -> None:
        if EvaluationResult.objects.exists() and not reached:
            agent_update(operator, agent, collects=False)
            reached.append(stored())
        play(slice, *args, **progress)

    monkeypatch.setattr(execution.EvaluationSlice, "play", opted_out_meanwhile)
    assert state(run_to_end(evaluation.job)) == STOPPED
    assert [stored()] == reached and EvaluationResult.objects.count() == 20
    agent_update(operator, agent, collects=True)
    job_resume(operator, evaluation.job)
    assert run_to_end(evaluation.job).status == Status.COMPLETED


def test_an_agent_of_another_organisation_goes_on(operator: Actor, agent: Agent, acme: Any) -> None:
    from tests import factories

    other = factories.AgentFactory(organization=acme)
    run = started(operator, agent)
    agent_update(operator, other, collects=False)
    assert run_to_end(run.job).status == Status.COMPLETED


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(brain=lambda _: suggesting(add("Name the depot.", confidence=0.9)), prices={"small": PRICE}) as on:
        yield on


def opting_out(agent: Agent, answer: str, *, at: int = 1) -> Callable[[Any], str]:
    """A model that answers, and at its n-th question a person opts out."""
    result = itertools.count(1)

    def opt_out() -> None:
        Agent.objects.filter(id=agent.id).update(collects=False)
        connection.close()

    def brain(_: Any) -> str:
        if next(result) == at:
            aside = threading.Thread(target=opt_out)  # the server thinks on an event loop, where Django won't wait
            aside.start()
            aside.join()
        return answer

    return brain


def test_a_playbook_does_not_evolve_from_an_agent_that_opted_out(
    operator: Actor, adam: Any, server: ModelServer
) -> None:
    playbook = playbook_of(operator, model_agent(Actor(adam), server))
    lived(operator, playbook.agent, 3)
    queued = evolution_queue(operator, playbook)
    agent_update(operator, playbook.agent, collects=False)
    assert state(run_to_end(queued.job)) == STOPPED and not server.requests
    assert JobEvent.objects.filter(job=queued.job, data__reason="not_recorded").exists()
    lifecycle.cancel(operator, queued.job)
    with pytest.raises(Conflict, match="may not be recorded"):
        evolution_queue(operator, playbook)
    assert "may not be recorded" in evolution_fault(playbook)


def test_a_models_answer_after_the_opt_out_is_not_kept(operator: Actor, adam: Any, server: ModelServer) -> None:
    playbook = playbook_of(operator, model_agent(Actor(adam), server))
    lived(operator, playbook.agent, 3)
    queued = evolution_queue(operator, playbook)

    server.brain = opting_out(playbook.agent, suggesting(add("Name the depot.", confidence=0.9)))
    assert state(run_to_end(queued.job)) == STOPPED
    assert not Question.objects.exists() and not ContextDelta.objects.exists()


@pytest.mark.parametrize("asked", [1, 20])
def test_rollouts_of_a_model_that_end_after_the_withdrawal_are_not_kept(
    operator: Actor, adam: Any, server: ModelServer, asked: int
) -> None:
    agent = model_agent(Actor(adam), server)
    rows = [{"query": f"What is {n} + 4?", "expected_outcome": {"answer": n + 4}} for n in range(30)]
    config = {"n_iterations": 3, "batch_size": 2, "n_trajectories_per_query": 3, "eval_interval": 2, "eval_samples": 1}
    run = run_start(operator, agent=agent, rows=rows, config=config | {"seed": 3, "max_budget_usd": 0.5})
    brain = opting_out(agent, "Answer: 7", at=asked)
    server.brain = brain
    assert state(run_to_end(run.job)) == STOPPED, run.job.error
    kept = TrajectoryRecord.objects.filter(agent_id=agent.id).count()
    assert kept < asked and Question.objects.filter(job=run.job).count() <= asked
    agent_update(operator, agent, collects=True)
    server.brain = lambda _: "Answer: 7"
    job_resume(operator, run.job)
    assert run_to_end(run.job).status == Status.COMPLETED, run.job.error
    assert Iteration.objects.filter(run=run).count() == 3
