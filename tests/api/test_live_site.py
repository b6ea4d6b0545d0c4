"""The doors of the real server with a real worker: waiting, streaming, cancelling, and health."""

from __future__ import annotations

import threading
import time
from typing import Any

import httpx
import pytest

from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.roles import SCOPES
from agentcore_site.tenancy.services import api_key_create
from experiences.models import Agent
from experiences.trajectories.storage import trajectories_write
from tests.support.openrpc import own_document, result_check
from tests.support.rows import lived_run, owner_of, trajectory
from tests.support.workers import LiveSite, eventually
from training.models import PolicyCheckpoint

pytestmark = pytest.mark.django_db(transaction=True)

SMALL = {"n_iterations": 8, "eval_samples": 1, "eval_interval": 4, "checkpoint_interval": 2, "seed": 3}
POOL = {"pool": {"train": 30, "selection": 10, "held_out": 20}}


class Program:
    """A client's program at the other end of the wire."""

    def __init__(self, site: LiveSite, actor: Actor) -> None:
        _, key = api_key_create(actor, name="wire", scopes=SCOPES)
        self.http = httpx.Client(base_url=site.url, headers={"Authorization": f"Bearer {key}"}, timeout=120)

    def result(self, method: str, **params: Any) -> dict[str, Any]:
        answer = self.http.post("/api/v1/jsonrpc", json={"jsonrpc": "2.0", "method": method, "params": params, "id": 1})
        assert "result" in answer.json(), answer.text
        result_check(own_document(), method, answer.json()["result"])
        return dict(answer.json()["result"])

    def status(self, job_id: str) -> dict[str, Any]:
        return self.result("training.get_status", job_id=job_id)

    def start(self, agent: Agent, **config: Any) -> str:
        started = self.result(
            "training.start_grpo", agent_id=agent.slug, environment_options=POOL, config=SMALL | config
        )
        return str(started["training_job_id"])


@pytest.mark.thorough(reason="a site of its own")
def test_a_program_trains_evaluates_and_exports(live_site: LiveSite, operator: Actor, agent: Agent) -> None:
    program = Program(live_site, operator)
    job_id = program.start(agent)
    eventually(lambda: program.status(job_id)["status"] == "completed", seconds=120, why="the job completes")
    status = program.status(job_id)
    assert status["progress"]["current_iteration"] == 8 and status["best_checkpoint"]

    result = program.result("training.evaluate", agent_id=agent.slug, samples=2, wait_seconds=100)
    assert result["status"] == "completed", result
    assert set(result["metrics"]) == {"success_rate", "avg_reward", "avg_steps", "tool_usage_accuracy"}
    comparison = result["baseline_comparison"]
    assert {"baseline_success_rate", "improvement_percent", "p_value", "statistically_significant"} <= set(comparison)
    assert result["evaluation_time_seconds"] > 0

    exported = program.result("training.export_trajectories", job_id=job_id, filters={"limit": 10})
    assert exported["exported_count"] == 10 and exported["total_count"] == status["trajectories"]
    assert all(row["advantage"] is not None for row in exported["trajectories"])

    health = program.http.get("/health/").json()
    assert health["dependencies"]["workers"]["answering"] >= 1 and health["status"] == "ok"


@pytest.mark.alone
def test_a_running_job_is_cancelled_within_seconds(live_site: LiveSite, operator: Actor, agent: Agent) -> None:
    program = Program(live_site, operator)
    # While it looks at the selection queries a cancelled job saves no policy. This one looks when it begins, and at its
    # end: what it learned since its last checkpoint has to be saved by the cancel.
    job_id = program.start(agent, n_iterations=10_000, early_stopping={"enabled": False}, eval_interval=10_000)
    eventually(PolicyCheckpoint.objects.filter(run_id=job_id).exists, seconds=90, why="it has saved a policy")
    began = time.monotonic()
    cancelled = program.result("training.cancel", job_id=job_id)
    took = time.monotonic() - began
    assert cancelled["status"] == "cancelled", program.status(job_id)["error"]
    assert cancelled["cancelled_at"] and cancelled["checkpoint_saved"] is True
    assert took < 6, took


@pytest.mark.alone
def test_waiting_callers_delay_no_other_caller(live_site: LiveSite, operator: Actor, agent: Agent) -> None:
    """Thirty callers wait for evaluations that no worker takes; the pool has eight connections."""
    program = Program(live_site, operator)
    lived_run(operator, agent)
    for process in live_site.fleet.processes[1:]:  # worker and beat
        process.terminate()
        process.wait(20)
    answers: list[dict[str, Any]] = []

    def wait() -> None:
        answers.append(Program(live_site, operator).result("training.evaluate", agent_id=agent.slug, wait_seconds=12))

    waiting = [threading.Thread(target=wait) for _ in range(30)]
    for thread in waiting:
        thread.start()
    eventually(
        lambda: program.http.get("/api/v1/evaluations?limit=200").json()["results"][29:], seconds=60, why="all wait"
    )
    slowest = 0.0
    for _ in range(20):
        began = time.monotonic()
        program.result("training.list_jobs")
        slowest = max(slowest, time.monotonic() - began)
    assert any(thread.is_alive() for thread in waiting), "they had stopped waiting before anything was measured"
    assert slowest < 2.0, slowest
    for thread in waiting:
        thread.join(60)
    assert len(answers) == 30
    assert {answer["status"] for answer in answers} == {"queued"} and answers[0]["metrics"] is None


@pytest.mark.thorough(reason="a site of its own")
def test_an_export_sends_its_first_rows_before_the_last_are_read(
    live_site: LiveSite, operator: Actor, agent: Agent
) -> None:
    run = lived_run(operator, agent)
    trajectories_write(owner_of(run), [trajectory(n, 0, 0, "q" * 100, True) for n in range(100, 8100)])
    program = Program(live_site, operator)
    size, lines, first = 0, 0, 0.0
    with program.http.stream("GET", f"/api/v1/trajectories/export?job={run.job_id}") as response:
        assert response.status_code == 200
        began = time.monotonic()
        for part in response.iter_raw():
            first = first or time.monotonic() - began
            size += len(part)
            lines += part.count(b"\n")
    whole = time.monotonic() - began
    assert lines == 8024
    assert first < whole / 2, (first, whole)  # a response that is built whole arrives whole


@pytest.mark.thorough(reason="a site of its own")
def test_a_reader_who_goes_away_stops_the_export(live_site: LiveSite, operator: Actor, agent: Agent) -> None:
    run = lived_run(operator, agent)
    trajectories_write(owner_of(run), [trajectory(n, 0, 0, "q" * 100, True) for n in range(100, 4100)])
    program = Program(live_site, operator)
    for _ in range(12):  # more than the pool has connections
        with program.http.stream("GET", f"/api/v1/trajectories/export?job={run.job_id}") as response:
            next(response.iter_raw())
    assert program.result("training.list_jobs")["total_count"] == 1
