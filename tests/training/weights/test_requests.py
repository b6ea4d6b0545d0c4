"""Requested trainings of weights run here, at a model server, by each of the algorithms."""

from __future__ import annotations

from typing import Any

import pytest

from agentcore_site.jobs.models import Status
from agentcore_site.lib.errors import Invalid
from agentcore_site.tenancy.actors import Actor
from evaluation.events.training import training_request
from experiences.agents.services.datasets import dataset_create
from experiences.models import Agent
from tests.support.running import run_to_end
from training.weights.random_model import LETTERS

pytestmark = [
    pytest.mark.thorough(reason="a model is trained"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow(reason="a model is trained"),
]

HYPERPARAMETERS = {"learning_rate": 0.005, "batch_size": 24, "epochs": 1}


def request(algorithm: str, **hyperparameters: Any) -> dict[str, Any]:
    config = {"algorithm": algorithm, "base_model": "tiny", "hyperparameters": HYPERPARAMETERS | hyperparameters}
    return {"training_job_id": algorithm, "training_config": config, "metadata": {"max_cost_usd": 5}}


@pytest.mark.parametrize(
    ("algorithm", "more", "expected"),
    [
        ("ppo", {"clip_epsilon": 0.1, "gamma": 0.9, "gae_lambda": 0.8},
         {"credit": "value", "epsilon": 0.1, "epsilon_high": 0.1, "gamma": 0.9, "gae_lambda": 0.8}),
        ("dpo", {}, {"algorithm": "dpo", "beta": 0.1}),
        ("rloo", {}, {"baseline": "loo", "loss_type": "reinforce"}),
        ("grpo", {"clip_epsilon": 0.1}, {"baseline": "group_mean", "epsilon": 0.1}),
    ],
)  # fmt: skip
def test_a_request_trains_weights_here(
    algorithm: str, more: dict[str, Any], expected: dict[str, Any], operator: Actor, tiny_agent: Agent
) -> None:
    dataset_create(operator, name="Letters", rows=LETTERS)
    made = training_request(operator, request(algorithm, **more))
    run = made.job.training_run
    config = run.configuration
    known = {"learner": "weights", "learning_rate": 0.005, "batch_size": 24, "n_iterations": 2, "max_budget_usd": 5}
    known |= expected
    assert {name: getattr(config, name) for name in known} == known
    assert (made.mode, run_to_end(made.job).status) == ("here", Status.COMPLETED), made.job.error
    assert [one.metrics["tokens"] > 0 for one in run.iterations.order_by("number")] == [True, True]


def test_a_setting_that_an_algorithm_of_weights_lacks_is_refused(operator: Actor, tiny_agent: Agent) -> None:
    dataset_create(operator, name="Letters", rows=LETTERS)
    with pytest.raises(Invalid, match="dpo of weights has no clip_epsilon, gae_lambda here"):
        training_request(operator, request("dpo", clip_epsilon=0.2, gae_lambda=0.9))
