"""Rows that the console's pages have something to show of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client

from agentcore_site.jobs.models import Job, Status
from agentcore_site.tenancy.actors import Actor
from evaluation import reports
from evaluation.models import EvaluationResult, EvaluationRun, Split
from evaluation.services import evaluation_start
from experiences.models import Agent
from experiences.trajectories.storage import TrajectoryScope, trajectories_write
from tests.selection import is_fast
from tests.support.rows import lived_run, trajectory
from training.models import TrainingRun

SignIn = Callable[[Any], Client]


@pytest.fixture(autouse=True)
def fresh_limits(request: pytest.FixtureRequest) -> None:
    """Wrong passwords of earlier tests don't count against this one."""
    if not is_fast(request.node):
        cache.clear()


@pytest.fixture
def signed_in() -> SignIn:
    """A browser of a person, without the sign-in form."""

    def made(person: Any) -> Client:
        client = Client(raise_request_exception=True)
        client.force_login(person)
        return client

    return made


@pytest.fixture
def console(olivia: Any, signed_in: SignIn) -> Client:
    """Olivia, the operator, at her desk."""
    return signed_in(olivia)


@pytest.fixture
def run(operator: Actor, agent: Agent) -> TrainingRun:
    return lived_run(operator, agent)


@pytest.fixture
def evaluation(operator: Actor, run: TrainingRun) -> EvaluationRun:
    """A finished evaluation of ten queries: the baseline fails on all, the checkpoint on the last two."""
    result = evaluation_start(operator, run=run, split=Split.HELD_OUT, samples=2)
    EvaluationRun.objects.filter(pk=result.pk).update(lines=["held_out"])
    result.lines = ["held_out"]
    for arm in ("baseline", "trained"):
        lived = [
            trajectory(0, scenario, k, f"question {scenario}", _won(arm, scenario))
            for scenario in range(10)
            for k in range(2)
        ]
        month = result.job.created_at.date().replace(day=1)
        owner = TrajectoryScope(
            result.pk, result.organization_id, result.agent_id, month, "evaluation", arm, "held_out"
        )
        trajectories_write(owner, lived)
        EvaluationResult.objects.bulk_create(_result(result, arm, scenario) for scenario in range(10))
    result.report = reports.build(result, uses=1, seconds=1.5)
    result.save(update_fields=["report"])
    Job.objects.filter(id=result.pk).update(status=Status.COMPLETED, progress=1.0)
    return EvaluationRun.objects.select_related("job").get(pk=result.pk)


def _won(arm: str, scenario: int) -> bool:
    return arm == "trained" and scenario < 8


def _result(asked: EvaluationRun, arm: str, scenario: int) -> EvaluationResult:
    won = _won(arm, scenario)
    return EvaluationResult(
        evaluation=asked,
        arm=arm,
        line="held_out",
        scenario=scenario,
        query=f"question {scenario}",
        outcomes=[float(won)] * 2,
        successes=[won] * 2,
        rewards=[1.0 if won else -0.1] * 2,
        steps=[2 if won else 5] * 2,
        tool_calls=[1, 1],
        tool_errors=[0, 0] if won else [1, 0],
        duration_ms=10.0 + scenario,
    )
