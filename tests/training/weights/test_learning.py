"""A model made at random learns from reward alone: a job from the launch form, paid from its budget, that a worker's
death and a model server's death do not lose."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from agentcore_site.jobs import lifecycle
from agentcore_site.jobs.models import Job, Status
from agentcore_site.jobs.services import job_resume
from agentcore_site.jobs.tasks import run_slice
from agentcore_site.lib.errors import Invalid
from agentcore_site.tenancy.actors import Actor
from budgets.ledger.reconciliation import differences
from budgets.models import LedgerEntry
from budgets.services import budget_set_limit
from evaluation.models import EvaluationRun
from evaluation.services import evaluation_of_finished_run
from experiences.agents.services.datasets import dataset_create
from experiences.models import Agent, TrajectoryRecord
from experiences.rollouts.captured import SampledTokens
from tests.support.model_server_process import ModelServerProcess
from tests.support.running import run_to_end, slices_of
from tests.training.weights.conftest import agent_at
from training.checkpoint_bytes import checkpoint_load
from training.learners import policy_of
from training.models import TrainingRun
from training.services import checkpoints
from training.services.runs import run_start
from training.weights.random_model import LETTERS

pytestmark = [
    pytest.mark.thorough(reason="a model is trained"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow(reason="a model is trained"),
]

CONFIG: dict[str, Any] = {
    "learner": "weights",
    "n_iterations": 4,
    "batch_size": 4,
    "n_trajectories_per_query": 4,
    "learning_rate": 0.005,
    "weights": {"lora_rank": 0},
    "credit": "uniform",
    "max_concurrent_rollouts": 64,
    "eval_interval": 100,
    "eval_samples": 1,
    "eval_temperature": 1.0,
    "max_budget_usd": 5,
    "seed": 3,
}
WHOLE = {"n_iterations": 30, "batch_size": 8, "n_trajectories_per_query": 8, "eval_samples": 2}


def start(actor: Actor, agent: Agent, **changes: Any) -> TrainingRun:
    return run_start(actor, agent=agent, rows=LETTERS, config=CONFIG | changes)


def slice_of(job: Job) -> None:
    claimed = lifecycle.claim(job.id)
    assert claimed is not None
    run_slice(claimed)


def weights_of(run: TrainingRun) -> Any:
    latest = checkpoints.latest(run)
    assert latest is not None
    return policy_of(checkpoint_load(latest)).weights  # type: ignore[attr-defined]


def test_a_job_from_the_launch_form_learns_and_is_proven_on_rows_that_were_held_out(
    client: Client, operator: Actor, tiny_agent: Agent
) -> None:
    client.force_login(operator.user)
    dataset = dataset_create(operator, name="Letters", rows=LETTERS)
    settings = {name: str(value) for name, value in (CONFIG | WHOLE).items() if name not in ("weights", "learner")}
    form = {"agent": tiny_agent.pk, "source": "dataset", "dataset": dataset.pk, "preset": "recommended"}
    form |= {"learner": "weights", "weights.lora_rank": "0"} | settings
    shown = client.get("/launch/", {"agent": tiny_agent.pk, "learner": "weights"})
    assert 'value="weights"' in shown.content.decode()
    answer = client.post("/launch/", form)
    assert answer.status_code == 302, answer.content.decode()[:2000]
    run = TrainingRun.objects.select_related("job").get()
    assert run_to_end(run.job).status == Status.COMPLETED, run.job.error
    figures = [one.metrics for one in run.iterations.order_by("number")]
    first, last = figures[:5], figures[-5:]
    assert sum(one["success_rate"] for one in last) > 2 * sum(one["success_rate"] for one in first)
    assert all(one["tokens"] > 0 for one in figures)
    evaluation = evaluation_of_finished_run(run.pk) or EvaluationRun.objects.get(run=run)
    assert run_to_end(evaluation.job).status == Status.COMPLETED
    run.refresh_from_db()
    assert run.verdict["improvement"] > 0.15 and run.verdict["low"] > 0, run.verdict["verdict"]
    for page in ("", "?tab=settings", "?tab=checkpoints", "?tab=evaluation", "?tab=trajectories"):
        assert client.get(f"/jobs/{run.pk}/{page}").status_code == 200, page
    # Each call of the model and of the trainer is in the ledger, and the run's spending is their sum.
    calls = LedgerEntry.objects.filter(job_id=run.job_id, kind="settle")
    trained = calls.filter(rollout="", purpose="training")
    assert trained.count() >= 3 * 25 and sum(trained.values_list("cost_micros", flat=True)) > 0
    assert run.spent_micros == sum(calls.values_list("cost_micros", flat=True)) and differences() == []


def test_tokens_are_stored_with_the_steps_and_a_checkpoint_holds_the_weights(
    operator: Actor, tiny_agent: Agent
) -> None:
    run = start(operator, tiny_agent)
    assert run_to_end(run.job).status == Status.COMPLETED
    rows = TrajectoryRecord.objects.filter(job_id=run.job_id, purpose="training")
    calls = [SampledTokens.unpacked(row.steps[0]["sampled"], None) for row in rows]
    assert len(calls) == 4 * 4 * 4 and all(len(one.completion) <= 4 < len(one.prompt) for one in calls)
    assert weights_of(run).digest


def test_a_killed_model_server_and_a_killed_worker_lose_nothing(
    operator: Actor, adam: Any, model_folder: Any, settings: Any
) -> None:
    with ModelServerProcess(model_folder) as mortal, slices_of(settings, 0):
        agent = agent_at(Actor(adam), mortal, endpoint_options={"max_retries": 0})
        run = start(operator, agent, n_iterations=3)
        slice_of(run.job)
        before = weights_of(run)
        mortal.stop()
        slice_of(run.job)
        run.job.refresh_from_db()
        assert (run.job.status, run.job.status_reason) == (Status.PAUSED, "waiting_for_llm")
        again = ModelServerProcess(model_folder, port=mortal.port).start()
        try:
            job_resume(operator, run.job)
            # Another worker goes on from the checkpoint: the model server, which knows nothing, is brought the weights.
            job = run_to_end(run.job)
        finally:
            again.stop()
        assert (job.status, job.error) == (Status.COMPLETED, "")
    assert [one.number for one in run.iterations.order_by("number")] == [1, 2, 3]
    assert TrajectoryRecord.objects.filter(job_id=job.id, purpose="training").count() == 3 * 4 * 4
    assert weights_of(run).digest != before.digest != "" and differences() == []


def test_a_budget_that_is_used_up_stops_the_training_too(operator: Actor, adam: Any, tiny_agent: Agent) -> None:
    run = start(operator, tiny_agent, max_budget_usd=0.012)
    job = run_to_end(run.job)
    assert (job.status, job.status_reason) == (Status.PAUSED, "budget_exceeded")
    assert run.spent_micros <= 12_000
    budget_set_limit(Actor(adam), organization=run.organization_id, limit_micros=5_000_000, job=job)
    job_resume(operator, job)
    assert run_to_end(job).status == Status.COMPLETED and differences() == []


def test_an_agent_whose_endpoint_is_not_of_weights_is_refused_at_launch(operator: Actor, tiny_agent: Agent) -> None:
    tiny_agent.endpoint.kind = "vllm"  # type: ignore[union-attr]
    tiny_agent.endpoint.save()  # type: ignore[union-attr]
    with pytest.raises(Invalid, match="not of kind weights"):
        start(operator, tiny_agent)
    with pytest.raises(Invalid, match="temperature must be 1"):
        start(operator, tiny_agent, temperature=0.7)
