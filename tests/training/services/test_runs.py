"""A training job over real rows: what is stored, what is resumed, what is refused."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from django.db import ProgrammingError, connection, transaction
from django.db.utils import DatabaseError

from agentcore_site.audit.models import AuditEvent
from agentcore_site.jobs import lifecycle
from agentcore_site.jobs.lease import Lease
from agentcore_site.jobs.models import Job, JobEvent, Status
from agentcore_site.jobs.services import job_cancel, job_pause, job_resume
from agentcore_site.jobs.tasks import run_slice
from agentcore_site.lib.errors import Conflict, Forbidden, Insufficient, Invalid, Missing
from agentcore_site.tenancy.actors import Actor
from budgets.ledger.accounts import BudgetOwner
from budgets.models import Scope
from budgets.services import limit_change
from evaluation.selectors import evaluations_visible
from experiences.models import Agent, GroupRecord, TrajectoryRecord
from experiences.trajectories.selectors import advantages_for, trajectories_visible
from tests.support.running import SMALL, SMALL_POOL, run_to_end
from tests.support.workers import eventually
from training.checkpoint_bytes import Damaged, checkpoint_load
from training.models import LARGE, Iteration, PolicyCheckpoint, TrainingRun
from training.presenters.shapes import StatusOut
from training.selectors.runs import checkpoints_visible, run_series, runs_visible
from training.services import checkpoints
from training.services.run_setup import setup_of
from training.services.runs import run_estimate, run_start

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def long_slices(settings: Any) -> None:
    """On a busy machine a slice of two seconds may end before the moment that a test waits for."""
    settings.JOB_SLICE_SECONDS = settings.JOB_ROUND_SECONDS = 600


def start(actor: Any, agent: Agent, **config: Any) -> TrainingRun:
    return run_start(actor, agent=agent, environment_options=SMALL_POOL, config=SMALL | config)


def final_weights(run: TrainingRun) -> Any:
    data = checkpoint_load(checkpoints.latest(run))  # type: ignore[arg-type]
    return setup_of(run).state_of(data).policy.weights


def test_job_stores_every_trajectory_and_applies_each_iteration_once(operator: Actor, agent: Agent) -> None:
    run = start(operator, agent)
    job = run_to_end(run.job)
    run.refresh_from_db()
    assert (job.status, job.status_reason) == (Status.COMPLETED, "all_iterations")
    assert list(Iteration.objects.filter(run=run).values_list("number", flat=True)) == list(range(1, 13))
    rows = TrajectoryRecord.objects.filter(job_id=job.id)
    per_group = Counter(rows.values_list("iteration", "scenario"))
    assert rows.count() == run.trajectories == 12 * 16
    assert set(per_group.values()) == {4}
    assert GroupRecord.objects.filter(job_id=job.id).count() == len(per_group) == 48
    one = rows.first()
    assert one is not None and one.n_steps == len(one.steps) > 0
    assert {"state", "action", "result", "timestamp", "choice", "logprob"} <= set(one.steps[0])
    assert {"advantage", "normalized_reward", "step_advantages"} == set(advantages_for([one])[one.id])


def test_a_run_cut_into_single_iterations_ends_with_the_same_policy(
    operator: Actor, agent: Agent, settings: Any
) -> None:
    whole = start(operator, agent)
    run_to_end(whole.job)
    settings.JOB_SLICE_SECONDS = 0
    cut = start(operator, agent)
    run_to_end(cut.job)
    cut.job.refresh_from_db()
    assert cut.job.attempt >= 12
    np.testing.assert_array_equal(final_weights(whole), final_weights(cut))


def test_iterations_after_the_last_checkpoint_are_redone_from_kept_trajectories(
    operator: Actor, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = start(operator, agent)
    run_to_end(whole.job)
    broken = start(operator, agent)

    from training.services import execution

    apply = execution.TrainingSlice.apply

    def dies_after_seven(self: Any, report: Any) -> None:
        apply(self, report)
        if report.iteration == 7:
            raise SystemExit("killed")  # past every handler, like a signal; nothing more is written

    monkeypatch.setattr(execution.TrainingSlice, "apply", dies_after_seven)
    claimed = lifecycle.claim(broken.job_id)
    assert claimed is not None
    with pytest.raises(SystemExit):
        run_slice(claimed)
    monkeypatch.setattr(execution.TrainingSlice, "apply", apply)
    assert Iteration.objects.filter(run=broken).count() == 7
    assert checkpoints.latest(broken).iteration == 5  # type: ignore[union-attr]
    Job.objects.filter(id=broken.job_id).update(lease_until="2000-01-01T00:00:00Z")
    run_to_end(broken.job)
    np.testing.assert_array_equal(final_weights(whole), final_weights(broken))
    assert TrajectoryRecord.objects.filter(job_id=broken.job_id).count() == 12 * 16
    assert Iteration.objects.filter(run=broken).count() == 12


@pytest.mark.thorough(reason="three whole runs; the test above cuts one at each iteration")
def test_pause_saves_a_checkpoint_and_resume_goes_on_to_the_same_end(operator: Actor, agent: Agent) -> None:
    # No look at the selection queries before the end: a pause that falls into one redoes that iteration instead.
    long = {"n_iterations": 120, "eval_interval": 120}
    whole = start(operator, agent, **long)
    run_to_end(whole.job)
    run = start(operator, agent, **long)
    claimed = lifecycle.claim(run.job_id)
    assert claimed is not None

    def pause_soon() -> None:
        try:
            begun = Iteration.objects.filter(run=run, number__gte=3)
            eventually(begun.exists, every=0.01, why="it has begun")
            job_pause(operator, run.job)
        finally:
            connection.close()

    other = threading.Thread(target=pause_soon)
    other.start()
    run_slice(claimed)
    other.join()
    run.job.refresh_from_db()
    if run.job.status == Status.PAUSED:  # a very fast machine may have finished first
        latest = checkpoints.latest(run)
        assert latest is not None
        assert latest.iteration == Iteration.objects.filter(run=run).order_by("-number").first().number  # type: ignore[union-attr]
        job_resume(operator, run.job)
        run_to_end(run.job)
    np.testing.assert_array_equal(final_weights(whole), final_weights(run))


def test_a_damaged_checkpoint_is_not_loaded_and_an_earlier_one_is(operator: Actor, agent: Agent) -> None:
    run = start(operator, agent)
    run_to_end(run.job)
    latest = checkpoints.latest(run)
    assert latest is not None
    PolicyCheckpoint.objects.filter(id=latest.id).update(data=b"something else")
    latest.refresh_from_db()
    with pytest.raises(Damaged, match="SHA-256"):
        checkpoint_load(latest)


def test_only_the_best_five_the_latest_and_the_tagged_are_kept(operator: Actor, agent: Agent) -> None:
    run = start(operator, agent, n_iterations=24, eval_interval=1, checkpoint_interval=1)
    run_to_end(run.job)
    kept = PolicyCheckpoint.objects.filter(run=run)
    assert kept.count() <= 7
    assert kept.filter(iteration=24).exists()
    run.refresh_from_db()
    assert kept.filter(id=run.best_checkpoint_id).exists()
    tagged = kept.order_by("iteration").first()
    assert tagged is not None
    checkpoints.checkpoint_tag(operator, tagged, ["release"])
    again = start(operator, agent, n_iterations=12, eval_interval=1, checkpoint_interval=1)
    run_to_end(again.job)
    assert PolicyCheckpoint.objects.filter(id=tagged.id).exists()


def test_two_active_jobs_for_one_agent_are_a_conflict(operator: Actor, agent: Agent) -> None:
    run = start(operator, agent)
    with pytest.raises(Conflict, match="already has an active training job"):
        start(operator, agent)
    job_cancel(operator, run.job)
    assert start(operator, agent).job.status == Status.QUEUED


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"n_iterations": 0}, "n_iterations"),
        ({"n_iterations": 10_001}, "n_iterations"),
        ({"batch_size": 129}, "batch_size"),
        ({"n_trajectories_per_query": 33}, "n_trajectories_per_query"),
        ({"n_trajectories_per_query": 1}, "n_trajectories_per_query"),
        ({"learning_rate": 0}, "learning_rate"),
        ({"learning_rate": 0.2}, "learning_rate"),
        ({"max_budget_usd": 0}, "max_budget_usd"),
        ({"checkpoint_interval": 0}, "checkpoint_interval"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
def test_each_wrong_setting_has_its_own_message(
    operator: Actor, agent: Agent, config: dict[str, Any], field: str
) -> None:
    with pytest.raises(Invalid) as refused:
        start(operator, agent, **config)
    assert refused.value.fields.get(field)
    assert not Job.objects.exists()


def test_bad_queries_are_refused_by_number(operator: Actor, agent: Agent) -> None:
    rows = [{"query": "2 + 2 =", "expected_outcome": {"answer": "4"}}, {"query": "   "}]
    with pytest.raises(Invalid, match="Row 2"):
        run_start(operator, agent=agent, rows=rows)
    with pytest.raises(Invalid):
        run_start(operator, agent=agent, rows=[])


def test_a_small_dataset_trains_with_a_warning(operator: Actor, agent: Agent) -> None:
    rows = [
        {
            "query": f"State the final answer to the following arithmetic problem: {n} + 7 =",
            "expected_outcome": {"answer": str(n + 7)},
        }
        for n in range(30)
    ]
    run = run_start(operator, agent=agent, rows=rows, config=SMALL | {"n_iterations": 3})
    assert any("fewer than 100" in warning for warning in run.warnings)
    assert run.n_held_out == 6 and run.n_selection == 9 and run.n_train == 15
    assert run_to_end(run.job).status == Status.COMPLETED


def test_each_role_starts_runs_or_is_refused(
    dan: Any, stella: Any, charlie: Any, operator: Actor, agent: Agent
) -> None:
    for person in (dan, stella):
        with pytest.raises(Forbidden):
            start(Actor(person), agent)
    with pytest.raises(Missing):
        start(Actor(charlie), agent)
    run = start(operator, agent)
    with pytest.raises(Forbidden):
        job_cancel(Actor(dan), run.job)
    with pytest.raises(Missing):
        job_cancel(Actor(charlie), run.job)
    assert not trajectories_visible(charlie).exists()


def test_an_estimate_that_does_not_fit_the_budget_is_refused(
    operator: Actor, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    from training.estimates import planning
    from training.estimates.measured import Rates, work
    from training.schema import GRPOConfig

    monkeypatch.setattr(planning, "_of_actions", lambda *_: Rates(1000.0, 50_000.0, n=10))
    estimate = run_estimate(operator, agent=agent, config=SMALL)
    result = work(
        GRPOConfig.model_validate(estimate["config"]),
        **{name: estimate[name] for name in ("n_train", "n_selection", "n_held_out")},
    )
    assert result.trained == 12 * 16 < result.rollouts  # looks and the proof are paid for like the rest
    assert estimate["cost_usd"] == pytest.approx(0.05 * result.rollouts)
    with pytest.raises(Insufficient, match="Raise the budget"):
        start(operator, agent, max_budget_usd=1)


def test_starts_and_their_settings_are_audited(operator: Actor, agent: Agent) -> None:
    run = start(operator, agent)
    event = AuditEvent.objects.get(action="run.started")
    assert (event.actor, event.after["config"]["seed"], event.target_id) == ("olivia", 7, str(run.job_id))
    for statement in ("UPDATE audit_auditevent SET actor = 'x'", "DELETE FROM audit_auditevent"):
        with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)


def test_trajectories_are_append_only(operator: Actor, agent: Agent) -> None:
    run = start(operator, agent, n_iterations=1)
    run_to_end(run.job)
    with pytest.raises((ProgrammingError, DatabaseError)), transaction.atomic():
        TrajectoryRecord.objects.filter(job_id=run.job_id).update(reward=1.0)


def test_status_and_series_agree_with_the_rows(operator: Actor, agent: Agent) -> None:
    run = start(operator, agent)
    run_to_end(run.job)
    run = TrainingRun.objects.get(job_id=run.job_id)
    status = StatusOut(run).data
    assert status["progress"] == {"current_iteration": 12, "total_iterations": 12, "percent_complete": 100.0}
    assert status["cost"]["budget_remaining_usd"] == 100.0
    assert status["best_checkpoint"].startswith("checkpoint-")
    series = run_series(run)
    assert [point["n"] for point in series["iterations"]] == list(range(1, 13))
    assert series["iterations"][-1]["trajectories"] == 192
    assert "loss" not in series["iterations"][0]
    assert len(run_series(run, after=10)["iterations"]) == 2
    assert run_series(run, after=10)["iterations"][0]["trajectories"] == 11 * 16
    assert JobEvent.objects.filter(job=run.job, type="completed").count() == 1


def test_the_heartbeat_keeps_a_lease_alive(operator: Actor, agent: Agent, settings: Any) -> None:
    settings.JOB_LEASE_SECONDS = 1
    run = start(operator, agent)
    claimed = lifecycle.claim(run.job_id)
    assert claimed is not None
    with Lease(claimed) as lease:
        threading.Event().wait(2.5)
        lease.check()
        assert lifecycle.claim(run.job_id) is None


def test_a_run_that_would_exceed_its_budget_pauses_with_a_checkpoint(
    operator: Actor, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    from experiences.rollouts.environments.tool_episode import ToolEpisode

    step = ToolEpisode.step

    async def paid(self: Any, choice: int) -> Any:
        return replace(await step(self, choice), cost_micros=1_000)

    monkeypatch.setattr(ToolEpisode, "step", paid)
    run = start(operator, agent, max_budget_usd=1)
    job = run_to_end(run.job)
    run.refresh_from_db()
    assert (job.status, job.status_reason) == (Status.PAUSED, "budget_exceeded")
    assert 0 < run.cost_micros <= run.budget_micros == 1_000_000
    assert checkpoints.latest(run).iteration == run.iteration  # type: ignore[union-attr]
    limit_change(None, BudgetOwner(job.organization_id, Scope.JOB, job.id, run.agent_id), 100_000_000)
    job_resume(operator, run.job)
    assert run_to_end(run.job).status == Status.COMPLETED


def test_no_list_reads_the_rules_by_which_runs_choose_lessons(operator: Actor) -> None:
    # A rule is some 100 KB, and a page of jobs has fifty rows.
    lists = [runs_visible(operator), checkpoints_visible(operator), evaluations_visible(operator)]
    lists += [TrainingRun.objects.all(), TrainingRun.objects.select_related("job")]
    assert not [rows for rows in lists if any(f'"{name}"' in str(rows.query) for name in LARGE)]
