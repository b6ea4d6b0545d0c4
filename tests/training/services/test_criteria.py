"""The acceptance criteria: each criterion is what its name says. And what the clean-up of checkpoints never deletes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from agentcore_site.jobs.models import Job, Status
from agentcore_site.tenancy.actors import Actor
from experiences.models import Agent, TrajectoryRecord
from tests.support.rows import lived_run, queued_run
from training.models import Iteration, PolicyCheckpoint, TrainingRun
from training.selectors.runs import done_criteria, run_get
from training.services.checkpoints import KEEP_BEST, checkpoint_save, checkpoint_tag, retention

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(operator: Actor, agent: Agent) -> TrainingRun:
    return lived_run(operator, agent)


def met(run: TrainingRun, name: str) -> bool | None:
    values = {one["name"]: one["met"] for one in done_criteria(run_get(run.job.created_by, run.pk))}
    return values[name]


def scores(run: TrainingRun, *values: float) -> None:
    Iteration.objects.filter(run=run).delete()
    Iteration.objects.bulk_create(
        Iteration(
            run=run, number=n + 1, trajectories=1, rollout_ms=1.0, update_ms=1.0, selection={"success_rate": value}
        )
        for n, value in enumerate(values)
    )


def test_a_run_that_stopped_early_did_not_run_all_iterations(run: TrainingRun) -> None:
    TrainingRun.objects.filter(pk=run.pk).update(iteration=2, total_iterations=5)
    Job.objects.filter(id=run.job_id).update(status_reason="early_stopped")
    assert met(run, "All iterations ran") is False
    TrainingRun.objects.filter(pk=run.pk).update(iteration=5)
    assert met(run, "All iterations ran") is True


@pytest.mark.parametrize(
    ("values", "rose"),
    [
        ([0.1 * n for n in range(10)], True),
        ([0.5] * 10, False),  # a tie is no rise
        ([0.1, 0.2, 0.3, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9], True),  # one dip, which the average hardly shows
        ([0.1, 0.3, 0.2, 0.4, 0.3, 0.2, 0.1, 0.5, 0.4, 0.6], False),
        ([0.5], False),
    ],
)
def test_validation_rose_means_nine_of_ten_steps_of_the_moving_average(
    run: TrainingRun, values: list[float], rose: bool
) -> None:
    scores(run, *values)
    assert met(run, "Validation rose") is rose


def test_a_checkpoint_that_does_not_load_is_none(run: TrainingRun) -> None:
    PolicyCheckpoint.objects.filter(run=run).update(data=b"something else")
    assert met(run, "Best checkpoint loads") is False


def test_the_best_checkpoint_and_the_export_are_tried(run: TrainingRun) -> None:
    assert met(run, "Best checkpoint loads") is True and met(run, "Trajectories can be exported") is True
    TrajectoryRecord.objects.filter(job_id=run.pk).delete()
    assert met(run, "Trajectories can be exported") is False  # despite the counter


# -- what is never deleted by itself -----------------------------------------------------------------------------------

LONG_AGO = timedelta(days=91)


def saved(run: TrainingRun, iteration: int, low: float | None = None) -> PolicyCheckpoint:
    score = None if low is None else {"success_rate": low + 0.1, "low": low, "high": low + 0.2}
    made = checkpoint_save(run, iteration=iteration, data=bytes([iteration]), metrics={}, selection=score)
    PolicyCheckpoint.objects.filter(id=made.id).update(
        created_at=timezone.now() - LONG_AGO + timedelta(seconds=iteration)
    )
    return made


def left() -> set[Any]:
    retention()
    return set(PolicyCheckpoint.objects.values_list("id", flat=True))


def queued(actor: Any, agent: Agent) -> TrainingRun:
    Job.objects.filter(exclusive_key=f"agent:{agent.id}").update(status=Status.COMPLETED)
    return queued_run(actor, agent)


def test_after_ninety_days_the_best_five_the_newest_and_the_tagged_stay(operator: Actor, agent: Agent) -> None:
    every = []
    for n in range(KEEP_BEST + 2):  # each of a run of its own, which keeps its last one for ninety days
        run = queued(operator, agent)
        every.append(saved(run, 1, low=0.1 * n))
        TrainingRun.objects.filter(pk=run.pk).update(best_checkpoint=None)
    plain = queued(operator, agent)
    unproven, newest = saved(plain, 1), saved(queued(operator, agent), 2)
    tagged = saved(queued(operator, agent), 1)
    checkpoint_tag(operator, tagged, ["keep"])
    Job.objects.update(status=Status.COMPLETED)
    assert left() == {*(one.id for one in every[-KEEP_BEST:]), newest.id, tagged.id}
    assert unproven.id not in left()


def test_the_best_of_a_run_that_was_never_proven_stays(operator: Actor, agent: Agent) -> None:
    first = queued(operator, agent)
    best = saved(first, 1, low=0.0)
    assert TrainingRun.objects.get(pk=first.pk).best_checkpoint_id == best.id and best.tags == []
    for n in range(KEEP_BEST):
        saved(queued(operator, agent), 1, low=0.5 + 0.01 * n)
    Job.objects.update(status=Status.COMPLETED)
    assert best.id in left()


@pytest.mark.parametrize(
    ("status", "stays"), [("paused", True), ("failed", True), ("queued", True), ("cancelled", False)]
)
def test_the_checkpoint_of_a_resumable_run_stays(operator: Actor, agent: Agent, status: str, stays: bool) -> None:
    waiting = queued(operator, agent)
    mine = saved(waiting, 3)
    saved(queued(operator, agent), 5)
    Job.objects.update(status=Status.COMPLETED)
    Job.objects.filter(id=waiting.job_id).update(status=status)
    assert (mine.id in left()) is stays
