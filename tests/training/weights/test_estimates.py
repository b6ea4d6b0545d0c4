"""The plan of a job that trains weights: what it says covers what the job is charged, training calls included."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from agentcore_site.jobs.models import Status
from agentcore_site.lib.money import MICROS
from agentcore_site.tenancy.actors import Actor
from budgets.models import LedgerEntry
from budgets.services import price_set
from evaluation.models import EvaluationRun
from evaluation.services import evaluation_of_finished_run
from experiences.agents.services.datasets import dataset_create
from experiences.models import Agent, Dataset
from tests.support.callers import Caller
from tests.support.model_server_process import ModelServerProcess
from tests.support.running import run_to_end
from tests.training.weights.conftest import PRICE, agent_at
from tests.training.weights.test_kills import ROWS
from tests.training.weights.test_learning import CONFIG as LEARNING
from training.models import TrainingRun
from training.services.runs import run_estimate, run_start

pytestmark = [
    pytest.mark.thorough(reason="a model is trained"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow(reason="a model is trained"),
]

# Early stopping would make a job cheaper than its plan.
CONFIG: dict[str, Any] = LEARNING | {"n_iterations": 6, "early_stopping": {"enabled": False}}
TRAIN_PRICE = 3 * PRICE


@pytest.fixture
def paid_agent(adam: Any, acme: Any, model_server: ModelServerProcess) -> Agent:
    """Training has a price of its own, and the model server's seconds cost money as well."""
    agent = agent_at(Actor(adam), model_server, endpoint_options={"gpu_usd_per_hour": 3.6})
    price_set(Actor(adam), model="tiny/train", organization=acme, input_micros=TRAIN_PRICE, output_micros=0)
    return agent


@pytest.fixture
def queries(operator: Actor) -> Dataset:
    return dataset_create(operator, name="Vowels", rows=ROWS)


def whole(operator: Actor, agent: Agent, queries: Dataset, **changes: Any) -> tuple[TrainingRun, float, float]:
    """A job with its proof, what it was charged in dollars, and how much of that for training calls."""
    run = run_start(operator, agent=agent, dataset=queries, config=CONFIG | changes)
    assert run_to_end(run.job).status == Status.COMPLETED, run.job.error
    proof = evaluation_of_finished_run(run.pk) or EvaluationRun.objects.filter(run=run).first()
    if proof is not None:
        assert run_to_end(proof.job).status == Status.COMPLETED
    paid = LedgerEntry.objects.filter(job_id=run.job_id, kind__in=("settle", "charge", "refund"))
    training = paid.filter(purpose="training", rollout="")
    charged = [sum(one.values_list("cost_micros", flat=True)) / MICROS for one in (paid, training)]
    return run, charged[0], charged[1]


def test_the_plans_dollars_cover_what_a_job_of_weights_is_charged(
    operator: Actor, paid_agent: Agent, queries: Dataset
) -> None:
    guess = run_estimate(operator, agent=paid_agent, dataset=queries, config=CONFIG)
    assert guess["cost_basis"] == "guess" and not guess["measured"]
    first, charged, trained = whole(operator, paid_agent, queries)
    assert first.estimate["training_calls"] == guess["training_calls"] and trained > 0.3 * charged
    assert trained <= guess["training_calls"]["cost_usd"] and charged <= guess["cost_usd_p90"]
    # What that job paid is what the next plan goes by, also for another number of iterations, and of passes in each.
    for changes in ({"n_iterations": 9}, {"num_iterations": 2}):
        plan = run_estimate(operator, agent=paid_agent, dataset=queries, config=CONFIG | changes)
        _, charged, trained = whole(operator, paid_agent, queries, **changes)
        planned = plan["training_calls"]
        assert (plan["cost_basis"], plan["measured"]) == ("factor", True)
        assert 0.5 * plan["cost_usd"] <= charged <= plan["cost_usd_p90"], (plan, charged)
        assert planned["updates"] in (9, 12) and 0.5 * planned["cost_usd"] <= trained <= 1.5 * planned["cost_usd"], (
            planned,
            trained,
        )


def test_form_rest_and_rpc_show_the_training_calls_and_a_free_model_with_paid_seconds_is_not_free(
    client: Client, operator: Actor, adam: Any, acme: Any, paid_agent: Agent, queries: Dataset
) -> None:
    api = Caller(operator.user)
    with_them = api.post(
        "training-jobs/estimate", {"agent": paid_agent.slug, "dataset_id": str(queries.pk), "config": CONFIG}
    ).json()
    planned = with_them["training_calls"]
    assert planned == {"model": "tiny", "updates": 6, "cost_usd": planned["cost_usd"]}
    assert 0 < planned["cost_usd"] < with_them["cost_usd"] and with_them["reflection"] is None
    client.force_login(operator.user)
    settings = {name: str(value) for name, value in CONFIG.items() if not isinstance(value, dict)}
    form = {"agent": paid_agent.pk, "source": "dataset", "dataset": queries.pk, "preset": "recommended"}
    shown = client.post("/launch/plan/", form | settings | {"weights.lora_rank": "0"}).content.decode()
    assert "Training calls" in shown and "6 updates of" in " ".join(shown.split())
    for model in ("tiny", "tiny/train"):
        price_set(Actor(adam), model=model, organization=acme, free=True)
    seconds_only = run_estimate(operator, agent=paid_agent, dataset=queries, config=CONFIG)
    assert 0 < seconds_only["cost_usd"] == seconds_only["training_calls"]["cost_usd"]
    assert seconds_only["affordable_iterations"] is not None
