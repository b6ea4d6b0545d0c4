"""Flow optimization's blueprint: the requests of its six methods word for word, and each error code that it names."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from agentcore_site.jobs.models import Job, Status
from agentcore_site.tenancy.actors import Actor
from experiences.models import Agent
from tests import factories
from tests.support.callers import Caller
from tests.support.rows import lived_run
from training.models import PolicyCheckpoint, TrainingRun

pytestmark = pytest.mark.django_db

CONFIG = {
    "n_iterations": 1000,
    "batch_size": 16,
    "n_trajectories_per_query": 8,
    "learning_rate": 0.0001,
    "max_budget_usd": 100,
    "checkpoint_interval": 10,
}
ROW = {"query": "string", "expected_outcome": {"answer": "string", "correct": True}}
ROWS = [ROW | {"query": f"string {n}"} for n in range(20)]


@pytest.fixture
def agent(acme: Any, olivia: Any) -> Agent:
    made: Agent = factories.AgentFactory(organization=acme, created_by=olivia, slug="string")
    return made


@pytest.fixture
def api(olivia: Any) -> Caller:
    return Caller(olivia)


@pytest.fixture
def run(operator: Actor, agent: Agent) -> TrainingRun:
    return lived_run(operator, agent)


def code(caller: Caller, method: str, params: Any) -> int:
    found: int = caller.error(method, params)["code"]
    return found


def test_start_grpo(api: Caller, agent: Agent, dan: Any) -> None:
    params: dict[str, Any] = {"agent_id": "string", "training_data": ROWS, "config": CONFIG}
    assert code(api, "training.start_grpo", params | {"agent_id": ""}) == 404
    for wrong in ({"n_iterations": 10_001}, {"batch_size": 0}, {"learning_rate": 0.2}, {"max_budget_usd": 0}):
        assert code(api, "training.start_grpo", params | {"config": CONFIG | wrong}) == 400, wrong
    assert code(api, "training.start_grpo", params | {"training_data": [ROW] * 10_001}) == 413
    assert code(Caller(dan), "training.start_grpo", params) == 403  # "platform operators only"
    result = api.result("training.start_grpo", params)
    assert set(result) >= {"training_job_id", "status", "estimated_cost_usd", "estimated_duration_hours"}
    assert code(api, "training.start_grpo", params) == 409


def test_get_status(api: Caller, run: TrainingRun, charlie: Any) -> None:
    result = api.result("training.get_status", {"job_id": str(run.job_id)})
    assert set(result) >= {
        "job_id", "status", "progress", "metrics", "cost", "best_checkpoint", "estimated_completion_time",
    }  # fmt: skip
    assert code(api, "training.get_status", {"job_id": str(uuid4())}) == 404
    assert code(Caller(charlie), "training.get_status", {"job_id": str(run.job_id)}) == 404  # a stranger learns nothing


def test_cancel(api: Caller, run: TrainingRun, stella: Any) -> None:
    params = {"job_id": str(run.job_id)}
    assert code(api, "training.cancel", params) == 409
    assert code(api, "training.cancel", {"job_id": str(uuid4())}) == 404
    Job.objects.filter(pk=run.job_id).update(status=Status.QUEUED)
    assert code(Caller(stella), "training.cancel", params) == 403
    assert set(api.result("training.cancel", params)) >= {"job_id", "status", "cancelled_at", "checkpoint_saved"}


def test_evaluate_names_missing_queries(api: Caller, run: TrainingRun) -> None:
    assert code(api, "training.evaluate", {"agent_id": "string", "eval_queries": "query1"}) == 400
    assert code(api, "training.evaluate", {"agent_id": "string", "eval_queries": ["query1", "query2"]}) == 400
    assert code(api, "training.evaluate", {"agent_id": "string", "checkpoint_id": str(uuid4())}) == 404
    PolicyCheckpoint.objects.all().delete()
    assert code(api, "training.evaluate", {"agent_id": "string"}) == 404


def test_export_trajectories(dan: Any, stella: Any, run: TrainingRun) -> None:
    params: dict[str, Any] = {
        "job_id": str(run.job_id),
        "filters": {"success_only": False, "min_reward": 0.5, "limit": 1000},
    }
    result = Caller(dan).result("training.export_trajectories", params)
    assert set(result) >= {"trajectories", "total_count", "exported_count"} and result["exported_count"] > 0
    one = result["trajectories"][0]
    assert set(one) >= {"trajectory_id", "query", "steps", "reward", "advantage", "success"}
    assert set(one["steps"][0]) >= {"state", "action", "result", "timestamp"}
    assert code(Caller(dan), "training.export_trajectories", params | {"filters": {"limit": 10_001}}) == 413
    assert code(Caller(dan), "training.export_trajectories", {"job_id": str(uuid4())}) == 404
    assert code(Caller(stella), "training.export_trajectories", params) == 403


def test_list_jobs(api: Caller, run: TrainingRun) -> None:
    result = api.result("training.list_jobs", {"agent_id": "string", "status": "completed", "limit": 50, "offset": 0})
    assert set(result) == {"jobs", "total_count", "limit", "offset"} and result["total_count"] == 1
    assert set(result["jobs"][0]) >= {"job_id", "agent_id", "status", "progress_percent", "created_at", "cost_usd"}
    assert code(api, "training.list_jobs", {"limit": -1}) == 400


def test_a_single_query_is_taken_with_a_warning(api: Caller, agent: Agent) -> None:
    """Edge case 2."""
    result = api.result("training.start_grpo", {"agent_id": "string", "training_data": [ROW], "config": CONFIG})
    assert "Only 1 query" in result["warnings"][0]
