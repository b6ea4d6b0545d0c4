"""An evaluation over real rows: both arms on the same queries, a report, a verdict on the run."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from agentcore_site.jobs import lifecycle
from agentcore_site.jobs.models import Job, Status
from agentcore_site.jobs.tasks import run_slice
from agentcore_site.lib.errors import Forbidden, Invalid, Missing
from agentcore_site.tenancy.actors import Actor
from evaluation.models import EvaluationResult, EvaluationRun, HeldOutUse
from evaluation.reports import build, verdict_words
from evaluation.rpc import EvaluatedOut
from evaluation.selectors import changed_queries, evaluations_visible
from evaluation.services import evaluation_start
from evaluation.serving.models import Release
from evaluation.serving.releases.bundle_builder import evidence_of
from evaluation.serving.releases.presenters import proof_of
from evaluation.serving.releases.services import release_make
from evaluation.statistics import p_of_try
from evaluation.tasks import sweep
from experiences.models import Agent, TrajectoryRecord
from tests.factories import AgentFactory
from tests.support.callers import Caller
from tests.support.openrpc import own_document, result_check
from tests.support.pages import html
from tests.support.running import SMALL, SMALL_POOL, run_to_end
from training.checkpoint_bytes import Damaged, checkpoint_load
from training.models import PolicyCheckpoint, TrainingRun
from training.policies.archive import pack, unpack
from training.selectors.runs import done_criteria, run_verdict
from training.services.checkpoint_uploads import checkpoint_upload
from training.services.checkpoints import best, checkpoint_rewrite
from training.services.pools import run_pools
from training.services.runs import run_start

pytestmark = pytest.mark.django_db(transaction=True)


def trained(operator: Actor, agent: Agent, iterations: int) -> TrainingRun:
    config = SMALL | {"n_iterations": iterations, "eval_samples": 2}
    made = run_start(operator, agent=agent, environment_options=SMALL_POOL, config=config)
    run_to_end(made.job)
    return TrainingRun.objects.select_related("job", "agent", "organization", "dataset").get(job_id=made.job_id)


@pytest.fixture
def run(operator: Actor, agent: Agent) -> TrainingRun:
    return trained(operator, agent, 4)


@pytest.fixture
def learned(operator: Actor, agent: Agent) -> TrainingRun:
    """A run long enough that its gain is proven."""
    return trained(operator, agent, 40)


def final(run: TrainingRun) -> EvaluationRun:
    return EvaluationRun.objects.select_related("job").get(run=run, final=True)


def test_a_finished_run_is_evaluated_on_held_out_queries(learned: TrainingRun) -> None:
    evaluation = final(learned)
    assert evaluation.lines == ["held_out", "harder_numbers", "unseen_wording"]
    assert run_to_end(evaluation.job).status == Status.COMPLETED
    evaluation.refresh_from_db()
    learned.refresh_from_db()
    success = evaluation.report["lines"]["held_out"]["metrics"]["success_rate"]
    assert success["baseline"] < success["trained"]
    assert success["baseline_low"] <= success["baseline"] <= success["baseline_high"]
    assert learned.verdict["success_rate"] == success["trained"]
    assert run_verdict(learned) == evaluation.report["verdict"]
    assert "on held-out queries" in run_verdict(learned) and "20 queries" in run_verdict(learned)
    assert {row["name"]: row["met"] for row in done_criteria(learned)}["Best checkpoint loads"]
    assert EvaluationResult.objects.filter(evaluation=evaluation, line="held_out").count() == 2 * 20
    assert TrajectoryRecord.objects.filter(job_id=evaluation.job_id, line="held_out").count() == 2 * 20 * 2
    changed = changed_queries(evaluation, "held_out")
    assert changed and abs(changed[0]["difference"]) >= abs(changed[-1]["difference"])
    assert len(changed[0]["baseline_trajectories"]) == len(changed[0]["trained_trajectories"]) == 2


def test_held_out_queries_were_never_trained_on(run: TrainingRun) -> None:
    pools = run_pools(run)
    trained = {scenario.query for scenario in pools.train} | {scenario.query for scenario in pools.selection}
    for line in ("held_out", "harder_numbers", "unseen_wording"):
        assert not trained & {scenario.query for scenario in pools.line(line)}
    seen = set(TrajectoryRecord.objects.filter(job_id=run.job_id).values_list("query", flat=True))
    assert seen <= trained


def test_each_use_of_the_held_out_set_is_counted(run: TrainingRun, operator: Actor) -> None:
    run_to_end(final(run).job)
    again = evaluation_start(operator, run=run, samples=1)
    run_to_end(again.job)
    again.refresh_from_db()
    assert HeldOutUse.objects.count() == 2
    assert again.report["looks"] == 2


def test_the_final_evaluation_is_asked_for_once(run: TrainingRun) -> None:
    assert EvaluationRun.objects.filter(run=run, final=True).count() == 1
    assert sweep() == 0
    EvaluationRun.objects.all().delete()
    Job.objects.filter(kind="evaluation").delete()
    assert sweep() == 1
    assert sweep() == 0


def test_an_interrupted_evaluation_continues_from_its_last_result(run: TrainingRun, settings: Any) -> None:
    settings.JOB_SLICE_SECONDS = 0
    evaluation = final(run)
    for _ in range(3):
        claimed = lifecycle.claim(evaluation.job_id)
        assert claimed is not None
        run_slice(claimed)
    settings.JOB_SLICE_SECONDS = 2
    run_to_end(evaluation.job)
    evaluation.refresh_from_db()
    assert len(evaluation.done) == len(set(evaluation.done)) == 6
    assert EvaluationResult.objects.filter(evaluation=evaluation).count() == 3 * 2 * 20


def test_an_evaluation_in_which_nothing_could_be_measured_says_so(run: TrainingRun) -> None:
    evaluation = final(run)
    evaluation.report = build(evaluation, uses=1, tries=0, seconds=1.0)
    found = EvaluatedOut(evaluation).data
    assert found["metrics"]["success_rate"] is None and found["baseline_comparison"]["improvement_points"] is None
    assert "Nothing was measured" in found["verdict"]
    result_check(own_document(), "training.evaluate", found)


@pytest.mark.parametrize(
    ("low", "high", "p_value", "tries", "said"),
    [
        (0.02, 0.10, 0.004, 0, "Better than it by 6.0 points on held-out queries"),
        (0.02, 0.10, 0.004, 3, "p = .048, corrected for try 3 on these queries"),
        (0.02, 0.10, 0.004, 4, "Not enough data on held-out queries"),
        (-0.10, -0.02, 0.004, 0, "Worse than it by 6.0 points"),
        (-0.04, 0.049, 0.5, 0, "No difference that matters on held-out queries, at most 5 points"),
        (-0.04, 0.051, 0.5, 0, "Not enough data on held-out queries"),
        (-0.051, 0.04, 0.5, 0, "Not enough data on held-out queries"),
    ],
)
def test_no_difference_is_claimed_where_the_interval_lies_within_the_margin_alone(
    low: float, high: float, p_value: float, tries: int, said: str
) -> None:
    success = {"improvement": (low + high) / 2, "low": low, "high": high, "p_value": p_value, "mde": 0.03}
    success |= {"baseline": 0.5, "trained": 0.5, "p_corrected": p_of_try(p_value, tries)}
    words = verdict_words(success, "held-out queries", 200, "it", tries)
    assert said in words.replace("\u00a0", " ")


def test_the_evaluated_checkpoint_is_kept(run: TrainingRun) -> None:
    assert "evaluated" in PolicyCheckpoint.objects.get(id=final(run).checkpoint_id).tags


def test_given_queries_are_found_in_the_run_and_unknown_ones_refused(run: TrainingRun, operator: Actor) -> None:
    known = [scenario.query for scenario in run_pools(run).held_out[:3]]
    evaluation = evaluation_start(operator, run=run, queries=known, samples=2)
    assert run_to_end(evaluation.job).status == Status.COMPLETED
    evaluation.refresh_from_db()
    result = EvaluatedOut(evaluation).data
    assert set(result["metrics"]) == {"success_rate", "avg_reward", "avg_steps", "tool_usage_accuracy"}
    assert 0 <= result["baseline_comparison"]["p_value"] <= 1
    with pytest.raises(Invalid, match="Query 1 is not among"):
        evaluation_start(operator, run=run, queries=["What is love?"])
    rows = [{"query": "What is 2 + 2?", "expected_outcome": {"answer": "4"}}]
    given = evaluation_start(operator, run=run, queries=rows, samples=1)
    assert run_to_end(given.job).status == Status.COMPLETED


def test_each_role_evaluates_or_is_refused(run: TrainingRun, dan: Any, stella: Any, charlie: Any) -> None:
    assert evaluation_start(Actor(dan), run=run, samples=1).job.status == Status.QUEUED
    with pytest.raises(Forbidden):
        evaluation_start(Actor(stella), run=run)
    with pytest.raises(Missing):
        evaluation_start(Actor(charlie), run=run)
    assert not evaluations_visible(charlie).exists()


def upload(run: TrainingRun, operator: Actor) -> PolicyCheckpoint:
    """A checkpoint of one agent's job, uploaded to another agent that has had a job by other settings."""
    twin = AgentFactory(organization=run.organization, created_by=operator.user, slug="twin")
    made = run_start(operator, agent=twin, environment_options=SMALL_POOL, config=SMALL | {"optimizer": "sgd"})
    run_to_end(made.job)
    data = checkpoint_load(checkpoint := best(run))
    return checkpoint_upload(operator, twin, data, sha256=checkpoint.sha256)


def test_an_uploaded_checkpoint_is_evaluated_on_queries_of_its_agents_newest_job_and_released_with_the_proof(
    learned: TrainingRun, operator: Actor
) -> None:
    uploaded = upload(learned, operator)
    before = release_make(operator, agent=uploaded.agent, checkpoint=uploaded)
    assert "was uploaded, and not evaluated here" in proof_of(before).text
    answer = Caller(operator.user).post("evaluations", {"checkpoint_id": str(uploaded.pk), "samples": 2})
    assert answer.status_code == 201
    newest = TrainingRun.objects.get(agent=uploaded.agent)
    assert answer.json()["training_job_id"] == str(newest.pk) != str(learned.pk)
    evaluation = EvaluationRun.objects.select_related("job").get(pk=answer.json()["evaluation_id"])
    assert run_to_end(evaluation.job).status == Status.COMPLETED
    evaluation.refresh_from_db()
    success = evaluation.report["lines"]["held_out"]["metrics"]["success_rate"]
    assert success["baseline"] < success["trained"] and success["n"] == 20
    assert run_verdict(TrainingRun.objects.get(pk=newest.pk)) == run_verdict(newest)  # the job's own proof stays
    evidence = evidence_of(PolicyCheckpoint.objects.get(pk=uploaded.pk))
    assert proof_of(Release(evidence=evidence)).text == evaluation.report["verdict"]
    assert (evidence["job"], evidence["held_out"]["improvement"]) == (str(newest.pk), success["improvement"])


def test_an_uploaded_checkpoint_that_does_not_fit_the_job_is_refused(run: TrainingRun, operator: Actor) -> None:
    uploaded = upload(run, operator)
    with pytest.raises(Invalid, match="belongs to another run"):
        evaluation_start(operator, run=run, checkpoint=uploaded)
    newest, data = TrainingRun.objects.get(agent=uploaded.agent), checkpoint_load(uploaded)
    state = unpack(data)
    other = pack(state | {"policy/actions": [*state["policy/actions"][:-1], "fly"]})
    checkpoint_rewrite(uploaded, other)
    with pytest.raises(Invalid, match="chooses among other actions"):
        evaluation_start(operator, run=newest, checkpoint=PolicyCheckpoint.objects.get(pk=uploaded.pk))
    PolicyCheckpoint.objects.filter(pk=uploaded.pk).update(data=data)
    with pytest.raises(Damaged):
        evaluation_start(operator, run=newest, checkpoint=PolicyCheckpoint.objects.get(pk=uploaded.pk))


def test_the_form_for_an_uploaded_checkpoint_says_whose_queries_the_checkpoint_answers(
    run: TrainingRun, operator: Actor, stella: Any
) -> None:
    uploaded, client = upload(run, operator), Client()
    client.force_login(operator.user)
    listed = html(client.get(f"/checkpoints/?agent={uploaded.agent_id}"))
    where = f"/evaluations/start/?checkpoint={uploaded.pk}"
    assert where in listed
    page = client.get(where)
    assert "agent's newest" in html(page) and page.context["run"].agent_id == uploaded.agent_id
    sent = {"run": page.context["run"].pk, "checkpoint": uploaded.pk, "split": "held_out"}
    assert client.post("/evaluations/start/", sent).status_code == 302
    assert EvaluationRun.objects.get(checkpoint=uploaded).split == "held_out"
    client.force_login(stella)
    assert client.get(where).status_code == 403
