"""Flow optimization's specification: its payload word for word, the answers that it prints, and its five stories."""

from __future__ import annotations

from typing import Any

import pytest

from agentcore_site.jobs.models import Job, Status
from agentcore_site.tenancy.actors import Actor
from budgets.models import Budget, Scope
from budgets.services import budget_set_limit
from experiences.models import Agent
from tests import factories
from tests.support.callers import Caller
from tests.support.rows import lived_run
from training.models import TrainingRun

pytestmark = pytest.mark.django_db

START: dict[str, Any] = {
    "jsonrpc": "2.0",
    "method": "training.start_grpo",
    "params": {
        "agent_id": "agent-123",
        "training_data": [
            {
                "query": "What is the capital of France?",
                "expected_outcome": {"answer": "Paris", "correct": True},
            }
        ],
        "config": {
            "n_iterations": 1000,
            "batch_size": 16,
            "n_trajectories_per_query": 8,
            "learning_rate": 0.0001,
            "max_budget_usd": 100,
            "checkpoint_interval": 10,
        },
    },
    "id": 1,
}


@pytest.fixture
def agent(acme: Any, olivia: Any) -> Agent:
    made: Agent = factories.AgentFactory(organization=acme, created_by=olivia, slug="agent-123")
    return made


@pytest.fixture
def api(olivia: Any) -> Caller:
    return Caller(olivia)


def test_its_start_is_taken_word_for_word(api: Caller, agent: Agent) -> None:
    """One query is far below its hundred (rule 6), which warns."""
    answer = api.post("jsonrpc", START).json()
    assert (answer["jsonrpc"], answer["id"]) == ("2.0", 1)
    assert set(answer["result"]) >= {"training_job_id", "status", "estimated_cost_usd", "estimated_duration_hours"}
    assert answer["result"]["status"] == "queued" and "fewer than 100" in answer["result"]["warnings"][0]
    run = TrainingRun.objects.get(job_id=answer["result"]["training_job_id"])
    assert {name: run.config[name] for name in START["params"]["config"]} == START["params"]["config"]


def test_the_status_of_a_job_has_every_name_that_the_seed_prints(api: Caller, operator: Actor, agent: Agent) -> None:
    run = lived_run(operator, agent)
    result = api.result("training.get_status", {"job_id": str(run.job_id)})
    assert set(result) >= {"job_id", "status", "progress", "metrics", "cost", "best_checkpoint"}
    assert set(result["progress"]) == {"current_iteration", "total_iterations", "percent_complete"}
    assert set(result["metrics"]) >= {"loss", "avg_reward", "std_reward", "eval_success_rate"}
    assert set(result["cost"]) == {"tokens_consumed", "cost_usd", "budget_remaining_usd"}


def test_an_administrator_sets_the_monthly_budget_in_the_configuration(adam: Any, agent: Agent, olivia: Any) -> None:
    """Story 5. Whom the right to edit budgets is not given is refused, and a budget that is set holds each job."""
    config = {"max_monthly_budget_usd": 25}
    body = {"agent_id": "agent-123", "config": config}
    assert Caller(olivia).error("training.start_grpo", body)["code"] == 403
    Caller(adam).result("training.start_grpo", body)
    assert Budget.objects.get(scope=Scope.AGENT, agent_id=agent.pk).limit_micros == 25_000_000
    Job.objects.update(status=Status.CANCELLED)
    Caller(olivia).result("training.start_grpo", body)  # it is that small already
    Job.objects.update(status=Status.CANCELLED)
    budget_set_limit(Actor(adam), organization=agent.organization_id, agent_id=agent.pk, limit_micros=30_000_000)
    assert Caller(olivia).error("training.start_grpo", body)["code"] == 403


def test_texts_are_evaluated_where_their_answer_is_known(api: Caller, operator: Actor, agent: Agent) -> None:
    """Story 3. A text of the agent's own pools has its outcome there; of any other no rule can say what is right."""
    lived_run(operator, agent)
    error = api.error("training.evaluate", {"agent_id": "agent-123", "eval_queries": ["query1", "query2"]})
    assert error["code"] == 400 and '"expected_outcome"' in error["data"]["fields"]["eval_queries"]


@pytest.mark.parametrize("status", ["queued", "running", "completed", "failed", "cancelled"])
def test_its_statuses_are_ours(status: str) -> None:
    assert status in Status.values
