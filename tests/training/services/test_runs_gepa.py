"""Jobs of algorithm gepa: rows, ledger, kills and budgets, with a simulated model that listens."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from django.test import Client

from agentcore_site.jobs.models import Status
from agentcore_site.jobs.services import job_resume
from agentcore_site.tenancy.actors import Actor
from budgets.ledger.reconciliation import differences
from budgets.models import Budget, LedgerEntry, Reservation
from budgets.services import budget_set_limit
from evaluation.models import EvaluationRun
from experiences.learning.lessons import prompts
from experiences.models import Agent, Experience, Question, TrajectoryRecord
from experiences.rollouts.prompt_quoting import steady_marks
from experiences.rollouts.structured_output import ModelAnswer
from tests.factories import AgentFactory
from tests.support.callers import Caller
from tests.support.llm_server import ModelServer
from tests.support.pages import html
from tests.support.rows import done
from tests.support.running import run_to_end, slices_of
from tests.training.services.test_runs_context import (  # noqa: F401  (fixtures)
    ROWS,
    agent,
    long_slices,
    operator_admin,
    server,
)
from training.checkpoint_bytes import checkpoint_load
from training.learners import policy_of
from training.models import Epoch, Iteration, PolicyCheckpoint, TrainingRun
from training.services import execution
from training.services.pools import run_pools
from training.services.run_setup import LazyReflector
from training.services.runs import run_start

pytestmark = pytest.mark.django_db(transaction=True)

CONFIG: dict[str, Any] = {
    "n_iterations": 16,
    "batch_size": 8,
    "eval_interval": 16,
    "eval_samples": 2,
    "max_concurrent_rollouts": 32,
    "max_budget_usd": 5.0,
    "checkpoint_interval": 5,
    "context": {"gate_samples": 4, "gate_steps": 1, "gate_alpha": 0.5},
    "seed": 3,
}


@pytest.fixture(autouse=True)
def same_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks around data differ by job, and the simulated model's opinions with every letter of a question."""
    monkeypatch.setattr(prompts, "steady_marks", lambda *secret: steady_marks("same", secret[-1]))


def start(operator: Actor, agent: Agent, **changes: Any) -> TrainingRun:  # noqa: F811
    return run_start(operator, agent=agent, rows=ROWS, preset="gepa", config=CONFIG | changes)


def result(run: TrainingRun) -> Any:
    """All that a run learned: its answers, and the texts of its last checkpoint."""
    last = PolicyCheckpoint.objects.filter(run=run).order_by("-iteration").first()
    assert last is not None
    policy: Any = policy_of(checkpoint_load(last))
    answers = [one["text"] if isinstance(one, dict) else one for one in policy.answers]
    return answers, [(lesson.text, lesson.status) for lesson in policy.library], len(policy.shipped)


def nothing_paid_twice(run: TrainingRun) -> None:
    rows = TrajectoryRecord.objects.filter(job_id=run.job_id)
    played = Counter(rows.values_list("purpose", "line", "iteration", "scenario", "rollout"))
    assert played and set(played.values()) == {1}
    keys = Question.objects.filter(job_id=run.job_id).values_list("key", flat=True)
    assert keys and len(keys) == len(set(keys))
    # Names of calls carry the attempt: without it, each has to be there once.
    bought = Reservation.objects.filter(job_id=run.job_id, state="settled").values_list("key", flat=True)
    names = Counter(key.split("/", 2)[-1] for key in bought)
    assert names and set(names.values()) == {1}, names.most_common(3)
    assert differences() == []


def test_a_job_ends_with_a_gate_and_a_proof_as_other_jobs_do(operator: Actor, agent: Agent) -> None:  # noqa: F811
    run = start(operator, agent, n_iterations=30, eval_interval=30)
    job = run_to_end(run.job)
    assert (job.status, job.error, job.status_reason) == (Status.COMPLETED, "", "all_iterations")
    run.refresh_from_db()
    epochs = list(Epoch.objects.filter(run=run).order_by("number"))
    gate = epochs[-1].gate
    assert gate["final"] and gate["looks"] == 1
    lessons = Experience.objects.filter(agent=agent)
    assert set(gate["candidate"]) <= set(lessons.values_list("handle", flat=True))
    assert all(TrajectoryRecord.objects.filter(id__in=row.taught_by).exists() for row in lessons)
    assert gate["accepted"] is lessons.filter(status="active").exists()
    evaluation = EvaluationRun.objects.filter(run=run).first()
    assert (evaluation is not None) is gate["accepted"] is True  # this seed finds something
    assert run_to_end(evaluation.job).status == Status.COMPLETED
    run.refresh_from_db()
    assert run.verdict["verdict"] and run.verdict["p_value"] is not None
    nothing_paid_twice(run)
    assert run.trajectories <= 30 * 8
    assert Budget.objects.get(job_id=run.job_id).spent_micros <= run.limit_micros
    # Held-out and selection queries took no part in the search.
    pools = run_pools(run)
    trained = set(
        TrajectoryRecord.objects.filter(job_id=run.job_id, purpose="training").values_list("query", flat=True)
    )
    assert trained <= {scenario.query for scenario in pools.train}
    paid = LedgerEntry.objects.filter(job_id=run.job_id)
    assert {"training", "reflection", "evaluation"} <= set(paid.values_list("purpose", flat=True))


@pytest.mark.thorough(reason="tests/training/learners/test_gepa.py kills a run in its middle")
@pytest.mark.slow(reason="two whole runs")
def test_a_job_that_is_killed_and_sliced_pays_for_nothing_twice_and_ends_alike(
    operator: Actor,
    agent: Agent,  # noqa: F811
    server: ModelServer,  # noqa: F811
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It dies while it commits, and right after a rewriting was answered; each slice is one iteration."""
    whole = start(
        operator, agent, context={**CONFIG["context"], "reuse": False, "gate_alpha": 1e-6, "accept_weak_gate": True}
    )
    run_to_end(whole.job)
    server.brain._asked.clear()  # type: ignore[attr-defined]
    apply, keep, deaths = execution.TrainingSlice.apply, LazyReflector._keep, []

    def dies(self: Any, report: Any) -> None:
        if report.iteration == 7 and "commit" not in deaths:
            deaths.append("commit")
            raise RuntimeError("killed")
        apply(self, report)

    def dies_after(self: LazyReflector, answered: ModelAnswer) -> None:
        keep(self, answered)
        if answered.iteration >= 8 and "answer" not in deaths:
            deaths.append("answer")
            raise RuntimeError("killed")

    monkeypatch.setattr(execution.TrainingSlice, "apply", dies)
    monkeypatch.setattr(LazyReflector, "_keep", dies_after)
    cut = start(
        operator, agent, context={**CONFIG["context"], "reuse": False, "gate_alpha": 1e-6, "accept_weak_gate": True}
    )
    with slices_of(settings, 0):
        for _ in range(10):
            if run_to_end(cut.job).status == Status.COMPLETED:
                break
            job_resume(operator, cut.job)
    cut.job.refresh_from_db()
    assert (cut.job.status, deaths) == (Status.COMPLETED, ["commit", "answer"])
    nothing_paid_twice(cut)
    assert result(cut) == result(whole)
    assert [row.iteration for row in Question.objects.filter(job_id=cut.job_id).order_by("iteration")] == [
        row.iteration for row in Question.objects.filter(job_id=whole.job_id).order_by("iteration")
    ]


@pytest.mark.thorough(reason="jobs of other algorithms are paused so in make test")
def test_an_empty_budget_pauses_it_and_more_money_lets_it_go_on(
    operator: Actor,
    agent: Agent,  # noqa: F811
) -> None:
    run = start(operator, agent, max_budget_usd=0.007)
    budget, pauses = Budget.objects.get(job_id=run.job_id), 0
    for _ in range(40):
        job = run_to_end(run.job)
        budget.refresh_from_db()
        assert budget.spent_micros <= budget.limit_micros
        if job.status == Status.COMPLETED:
            break
        assert (job.status, job.status_reason) == (Status.PAUSED, "budget_exceeded")
        pauses += 1
        budget_set_limit(
            operator_admin(agent),
            organization=run.organization_id,
            job=run.job,
            agent_id=agent.id,
            limit_micros=budget.limit_micros + 1_500,
        )
        job_resume(operator, run.job)
    assert job.status == Status.COMPLETED and pauses
    assert Iteration.objects.filter(run=run).count() == TrainingRun.objects.get(pk=run.pk).iteration
    nothing_paid_twice(run)


def test_form_rest_and_rpc_offer_it_for_agents_of_language_models_alone(
    operator: Actor,
    agent: Agent,  # noqa: F811
    client: Client,
) -> None:
    client.force_login(operator.user)
    acting = AgentFactory(organization=agent.organization)
    offered = 'name="preset" value="gepa"'
    assert offered in html(client.get(f"/launch/?agent={agent.pk}"))
    assert offered not in html(client.get(f"/launch/?agent={acting.pk}"))
    caller = Caller(operator.user)
    assert "gepa" in {row["name"] for row in caller.get("presets").json()}
    body = {"training_data": ROWS, "config": {"algorithm": "gepa"}}
    refused = caller.post("training-jobs", body | {"agent": acting.slug})
    assert refused.status_code == 400 and "has no context. Take algorithm grpo" in str(refused.json())
    error = caller.rpc("training.start_grpo", body | {"agent_id": acting.slug})["error"]
    assert error["code"] == 400 and "algorithm gepa" in error["message"]
    form = {"agent": acting.pk, "source": "environment", "preset": "recommended", "algorithm": "gepa"}
    response = client.post("/launch/", form)
    assert response.status_code == 400 and "has no context. Take algorithm grpo" in html(response)
    unread = caller.post("training-jobs", body | {"agent": agent.slug, "config": {"algorithm": "gepa", "beta": 0.1}})
    assert unread.status_code == 400 and "beta changes nothing" in str(unread.json())
    planned = caller.post("training-jobs/estimate", {"agent": agent.slug, "n_queries": 150, "preset": "gepa"}).json()
    assert planned["reflection"]["questions"] == 150
    taken = caller.post("training-jobs", {"agent": agent.slug, "training_data": ROWS, "preset": "gepa"})
    assert taken.status_code == 201, taken.json()
    assert TrainingRun.objects.get().configuration.algorithm == "gepa"


def test_the_page_of_comparisons_shows_it_beside_grpo(
    operator: Actor,
    agent: Agent,  # noqa: F811
    client: Client,
) -> None:
    ours = run_start(operator, agent=agent, rows=ROWS, config={"seed": 3})
    done(ours, 2, trajectories=24)
    theirs = start(operator, agent, context={**CONFIG["context"], "reuse": False})
    client.force_login(operator.user)
    shown = html(client.get(f"/jobs/compare/?pick={ours.pk}&pick={theirs.pk}"))
    differing = re.findall(r'<th scope="row">([^<]+)</th>', shown.split("Settings that differ")[-1])
    assert "algorithm" in differing
    row = shown.split("Settings that differ")[-1].split('<th scope="row">algorithm</th>')[1].split("</tr>")[0]
    assert re.sub(r"<[^>]+>|\s+", " ", row).split() == ["grpo", "gepa"]
