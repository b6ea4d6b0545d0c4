"""Failures grouped by reason, their trend, and the tab of a job that shows them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.test import Client

from agentcore_site.tenancy.actors import Actor
from experiences.models import Agent, TrajectoryRecord
from experiences.rollouts.types import Trajectory
from experiences.trajectories.failures import failure_groups, with_reason
from experiences.trajectories.storage import trajectories_write
from tests.support.pages import html
from tests.support.rows import lived_run, owner_of, trajectory
from training.models import TrainingRun

pytestmark = pytest.mark.django_db


def ended(n: int, iteration: int = 0, *, last: dict[str, Any] | None = None, **changes: Any) -> Trajectory:
    """A rollout that failed; ``last`` changes its last step."""
    one = trajectory(iteration, 70, n, "a query", False)
    if last is not None:
        one.steps[-1] = replace(one.steps[-1], **last)
    return replace(one, **changes)


TOOL = {"action": {"type": "tool", "tool": "search", "parameters": {}}, "result": {"success": False, "error": "away"}}
SEARCHED = {"action": {"type": "tool", "tool": "search", "parameters": {}}, "result": {"success": True, "output": "x"}}


@pytest.fixture
def run(operator: Actor, agent: Agent) -> TrainingRun:
    """Twelve successes and twelve wrong answers of two iterations, and one failure of each other kind."""
    made = lived_run(operator, agent)
    trajectories_write(
        owner_of(made),
        [
            ended(0, error="timeout: the tool took 30 s"),
            ended(1, last=TOOL, truncated=True),
            ended(2, truncated=True),
            ended(3, last=TOOL),
            ended(4, last=SEARCHED),
            ended(5, steps=[]),
        ],
    )
    return made


def test_each_failure_has_one_reason(run: TrainingRun) -> None:
    groups, total = failure_groups(TrajectoryRecord.objects.filter(job_id=run.pk), 2)
    assert total == 30
    assert {one.reason: one.n for one in groups} == {
        "wrong_answer": 12, "error:timeout": 1, "cut_off:search": 1, "cut_off": 1, "tool:search": 1, "no_answer": 1,
        "no_step": 1,
    }  # fmt: skip
    wrong = groups[0]
    assert (wrong.first, wrong.last, wrong.share) == (0, 1, 12 / 30)
    assert wrong.interval.low < 0.4 < wrong.interval.high
    assert groups[0].title == "Wrong answer" and {one.title for one in groups} >= {"search failed last"}


def test_the_filter_finds_what_the_group_counted(run: TrainingRun) -> None:
    rows = TrajectoryRecord.objects.filter(job_id=run.pk)
    groups, _ = failure_groups(rows, 2)
    for one in groups:
        result = with_reason(rows, one.reason)
        assert result.count() == one.n and result.filter(pk=one.example).exists(), one.reason


def test_a_trend_is_named_where_the_halves_differ(operator: Actor, agent: Agent) -> None:
    run = lived_run(operator, agent, iterations=1)
    owner = owner_of(run)
    for iteration in range(12):
        n = 30 if iteration < 6 else 1
        trajectories_write(owner, [ended(k, iteration, error="timeout: slow") for k in range(n)])
        trajectories_write(owner, [trajectory(iteration, 80, k, "won", True) for k in range(40 - n)])
    values = {one.reason: one for one in failure_groups(TrajectoryRecord.objects.filter(job_id=run.pk), 12)[0]}
    assert values["error:timeout"].trend == "rarer" and len(values["error:timeout"].shares) == 12
    assert values["wrong_answer"].trend == ""  # six of twelve in one iteration show no trend


def test_the_tab_groups_searches_and_links(console: Client, run: TrainingRun) -> None:
    page = f"/jobs/{run.pk}/?tab=failures"
    shown = html(console.get(page))
    assert "18 of 30 trajectories failed" in shown and "Wrong answer" in shown and "to 1" in shown
    assert "reason=error%3Atimeout" in shown
    listed = html(console.get(f"/jobs/{run.pk}/?tab=trajectories&reason=error%3Atimeout"))
    assert "1 trajectory" in listed and "Error: timeout" in listed
    assert "reason=wrong_answer" not in html(console.get(f"{page}&find=timeout"))
    assert "No reason matches" in html(console.get(f"{page}&find=nothing+like+it"))
    assert "search failed last" in html(console.get(f"{page}&kind=tool&order=latest"))


def test_a_job_without_failures_says_so(console: Client, operator: Actor, agent: Agent) -> None:
    run = lived_run(operator, agent, rollouts=0)
    assert "No trajectory yet" in html(console.get(f"/jobs/{run.pk}/?tab=failures"))
    trajectories_write(owner_of(run), [trajectory(0, 0, 0, "q", True)])
    assert "All 1 trajectory succeeded" in html(console.get(f"/jobs/{run.pk}/?tab=failures"))


@pytest.fixture
def console(olivia: Any) -> Client:
    client = Client()
    client.force_login(olivia)
    return client
