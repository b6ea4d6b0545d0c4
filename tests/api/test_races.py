"""The same request many times at once: one job, one answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from agentcore_site.jobs.models import Job
from experiences.models import Agent
from tests.support.callers import Caller

pytestmark = pytest.mark.django_db(transaction=True)

CALLERS = 8


def at_once(ask: Callable[[], Any]) -> list[Any]:
    """The answers of eight threads that begin together."""
    barrier, answers = threading.Barrier(CALLERS), []

    def run() -> None:
        try:
            barrier.wait(10)
            answers.append(ask())
        finally:
            connection.close()

    threads = [threading.Thread(target=run) for _ in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(answers) == CALLERS
    return answers


def test_one_idempotency_key_starts_one_job_for_any_number_of_requests(olivia: Any, agent: Agent) -> None:
    caller = Caller(olivia)
    body = {"agent": agent.slug, "config": {"n_iterations": 3}}
    answers = at_once(lambda: caller.post("training-jobs", body, Idempotency_Key="once"))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["job_id"] for answer in answers}) == 1
    assert sum("Idempotent-Replayed" not in answer for answer in answers) == 1
    assert Job.objects.count() == 1


def test_without_a_key_one_gets_the_job_and_the_others_a_conflict(olivia: Any, agent: Agent) -> None:
    caller = Caller(olivia)
    params = {"agent_id": agent.slug, "config": {"n_iterations": 3}}
    answers = at_once(lambda: caller.rpc("training.start_grpo", params))
    codes = sorted(answer.get("error", {}).get("code", 0) for answer in answers)
    assert codes == [0] + [409] * (CALLERS - 1)
    assert Job.objects.count() == 1


def test_of_many_cancels_one_wins(olivia: Any, agent: Agent) -> None:
    caller = Caller(olivia)
    job_id = caller.result("training.start_grpo", {"agent_id": agent.slug})["training_job_id"]
    answers = at_once(lambda: caller.rpc("training.cancel", {"job_id": job_id}))
    codes = sorted(answer.get("error", {}).get("code", 0) for answer in answers)
    assert codes == [0] + [409] * (CALLERS - 1)
