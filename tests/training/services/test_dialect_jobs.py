"""A job of 24 rollouts with tools against a server of each dialect: none is refused, and the ledger has all calls."""

from __future__ import annotations

from typing import Any

import pytest

from agentcore_site.jobs.models import Status
from agentcore_site.tenancy.actors import Actor
from budgets.llm.profiles import profile_options
from budgets.models import Budget
from budgets.services import price_set
from experiences.agents.services.agents import agent_create
from experiences.agents.services.endpoints import endpoint_create
from experiences.models import TrajectoryRecord
from tests.support.dialects import DIALECTS, DialectServer
from tests.support.running import run_to_end
from training.services.runs import run_start

pytestmark = pytest.mark.django_db(transaction=True)

ROWS = [{"query": f"What is {n} + {n + 3}?", "expected_outcome": {"answer": 2 * n + 3}} for n in range(24)]
CONFIG = {
    "n_iterations": 2,
    "batch_size": 4,
    "n_trajectories_per_query": 3,
    "eval_samples": 1,
    "max_budget_usd": 0.5,
    "max_concurrent_rollouts": 8,
    "selection_share": 0.1,
    "selection_least": 1,
    "context": {"propose": False, "gate_samples": 1, "gate_steps": 1, "accept_weak_gate": True},
    "seed": 3,
}
FEW = ("openai-gpt-5", "mistral")
THOROUGH = pytest.mark.thorough(reason="a job for each of eighteen servers")


@pytest.mark.parametrize("name", [name if name in FEW else pytest.param(name, marks=THOROUGH) for name in DIALECTS])
def test_a_job_of_24_rollouts_is_taken_by_each_service(operator: Actor, adam: Any, name: str) -> None:
    dialect, admin = DIALECTS[name], Actor(adam)
    organization = adam.memberships.get().organization
    price_set(admin, model=dialect.model, organization=organization, input_micros=10**6, output_micros=10**6)
    with DialectServer(dialect, prices={dialect.model: (10**6, 10**6)}) as server:
        options = profile_options(dialect.address, dialect.model, dialect.kind) | {"max_retries": 0}
        endpoint = endpoint_create(
            admin,
            name=name,
            base_url=server.base_url,
            model=dialect.model,
            kind=dialect.kind,
            api_key="sk-1",
            options=options,
        )
        agent = agent_create(
            admin,
            name="Adder",
            runtime="llm",
            philosophy="react",
            environment="dataset",
            endpoint=endpoint,
            max_tokens=200,
            tools=["calculator"],
        )
        run = run_start(operator, agent=agent, rows=ROWS, config=CONFIG)
        job = run_to_end(run.job)
        assert (job.status, job.error) == (Status.COMPLETED, "")
        kept = TrajectoryRecord.objects.filter(job_id=job.id, purpose="training")
        assert kept.count() == 24 and not kept.exclude(error="").exists()
        assert kept.filter(n_steps__gte=2, success=True).count() == 24
        budget = Budget.objects.get(job_id=job.id)
        assert not server.refused and (budget.reserved_micros, budget.debt_micros) == (0, 0)
        assert budget.spent_micros == server.owed.micros > 0
