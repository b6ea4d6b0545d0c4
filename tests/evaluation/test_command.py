"""``manage.py evaluate``: the same evaluation as the other interfaces ask for, followed from a shell."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from agentcore_site.jobs.models import Job, Status
from agentcore_site.tenancy.actors import Actor
from evaluation.models import EvaluationRun
from experiences.models import Agent
from tests.support.running import SMALL, SMALL_POOL, run_to_end
from tests.support.workers import eventually
from training.services.runs import run_start

pytestmark = pytest.mark.django_db(transaction=True)


def test_command_starts_follows_and_prints_the_verdict(operator: Actor, agent: Agent) -> None:
    made = run_start(operator, agent=agent, environment_options=SMALL_POOL, config=SMALL)
    run_to_end(made.job)
    final = EvaluationRun.objects.get(run=made, final=True)
    run_to_end(final.job)

    def work() -> None:
        try:
            run_to_end(eventually(lambda: Job.objects.filter(kind="evaluation", status=Status.QUEUED).first()))
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as beside:
        worker = beside.submit(work)
        said, errors = StringIO(), StringIO()
        call_command("evaluate", agent=agent.slug, samples=1, json=True, stdout=said, stderr=errors)
        worker.result(60)
    body = json.loads(said.getvalue())
    response = EvaluationRun.objects.get(job_id=body["evaluation_id"])
    assert response.pk != final.pk and response.samples == 1 and f"evaluation {response.pk}" in errors.getvalue()
    assert body["status"] == "completed" and body["verdict"] == response.report["verdict"] != ""
    assert (
        body["baseline_comparison"]["p_value"]
        == response.report["lines"]["held_out"]["metrics"]["success_rate"]["p_value"]
    )


@pytest.mark.parametrize("options", [{"agent": "nobody-s"}, {"checkpoint": "x"}, {}])
def test_a_refused_evaluation_gives_its_reason_in_a_sentence(agent: Agent, options: dict[str, Any]) -> None:
    with pytest.raises(CommandError, match=r"There is no agent|checkpoint"):
        call_command("evaluate", **{"agent": agent.slug} | options)
