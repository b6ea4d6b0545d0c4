"""A cheap agent learns from a strong reflector: a model of its own says what attempts teach, at a price of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db.models import Sum
from django.test import Client
from django.utils import timezone

from agentcore_site.jobs.models import Job, Status
from agentcore_site.jobs.services import job_resume
from agentcore_site.lib.errors import Conflict, Invalid, Missing
from agentcore_site.tenancy.actors import Actor
from budgets.ledger.reconciliation import differences
from budgets.models import LedgerEntry
from budgets.services import budget_set_limit, price_set
from experiences.agents.services.agents import agent_archive, agent_create, agent_update
from experiences.agents.services.datasets import dataset_create
from experiences.agents.services.endpoints import endpoint_archive, endpoint_create
from experiences.models import Agent, Dataset, Experience, ModelEndpoint, Question
from tests.factories import MembershipFactory, UserFactory
from tests.support.llm_server import ModelServer
from tests.support.pages import html
from tests.support.running import run_to_end
from tests.support.simulated_adviser import Adviser
from tests.support.simulated_model import simulated_server
from tests.support.world import World
from training.exports.manifests import run_manifest
from training.models import TrainingRun
from training.selectors.run_lessons import run_epochs
from training.services.run_lessons import starting_library
from training.services.runs import run_estimate, run_start

pytestmark = pytest.mark.django_db
runs = pytest.mark.django_db(transaction=True)  # jobs write from threads of their own

WORLD = World(7)
ROWS = WORLD.rows(60, 7)
CHEAP, STRONG = (150_000, 600_000), (3_000_000, 15_000_000)
CONFIG: dict[str, Any] = {
    "n_iterations": 2,
    "batch_size": 6,
    "n_trajectories_per_query": 4,
    "eval_samples": 1,
    "selection_share": 0.1,
    "selection_least": 1,
    "max_concurrent_rollouts": 16,
    "max_budget_usd": 2.0,
    "context": {"gate_samples": 2, "gate_steps": 1, "propose_until": 1.0, "min_mixed": 0.0, "accept_weak_gate": True},
    "seed": 3,
}


@pytest.fixture
def cheap() -> Iterator[ModelServer]:
    with simulated_server(WORLD, prices={"small": CHEAP}) as running:
        yield running


@pytest.fixture
def strong() -> Iterator[ModelServer]:
    with simulated_server(WORLD, prices={"large": STRONG}) as running:
        yield running


@pytest.fixture
def reflector(adam: Any, strong: ModelServer) -> ModelEndpoint:
    return endpoint_create(Actor(adam), name="strong", base_url=strong.base_url, model="large", api_key="sk-strong-1")


@pytest.fixture
def learner(adam: Any, acme: Any, cheap: ModelServer, reflector: ModelEndpoint) -> Agent:
    priced(adam, acme, "small", CHEAP)
    own = endpoint_create(Actor(adam), name="cheap", base_url=cheap.base_url, model="small", api_key="sk-cheap-1")
    return agent_create(
        Actor(adam),
        name="Learner",
        runtime="llm",
        philosophy="cot",
        environment="dataset",
        endpoint=own,
        reflector=reflector,
        max_tokens=200,
    )


@pytest.fixture
def rows(operator: Actor) -> Dataset:
    return dataset_create(operator, name="topics", rows=ROWS)


def priced(adam: Any, acme: Any, model: str, price: tuple[int, int]) -> None:
    price_set(Actor(adam), model=model, organization=acme, input_micros=price[0], output_micros=price[1])


@runs
def test_a_reflector_is_asked_at_its_own_endpoint_and_paid_by_its_own_price(
    operator: Actor, learner: Agent, adam: Any, acme: Any, cheap: ModelServer, strong: ModelServer
) -> None:
    priced(adam, acme, "large", STRONG)
    run = run_start(operator, agent=learner, rows=ROWS, config=CONFIG)
    assert run_to_end(run.job).status == Status.COMPLETED
    questions = Question.objects.filter(job=run.job)
    assert questions.filter(usable=True).exists() and set(questions.values_list("model", flat=True)) == {"large"}
    assert {call.model for call in strong.requests} == {"large"} and {call.model for call in cheap.requests} == {
        "small"
    }
    # What the ledger holds of reflection is what the strong model's service would bill, to the micro-dollar.
    paid = LedgerEntry.objects.filter(job_id=run.job_id, purpose="reflection")
    assert set(paid.values_list("model", flat=True)) == {"large"}
    assert (
        sum(one.spent_delta_micros for one in paid) == strong.owed.micros == sum(one.cost_micros for one in questions)
    )
    assert strong.owed.answered == sum(one.calls for one in questions)
    assert differences() == []
    stages = [stage for epoch in run_epochs(run) for stage in epoch["questions"]]
    assert stages and all(stage["models"] == ["large"] for stage in stages)


@runs
def test_an_exemplar_is_kept_as_an_exemplar_and_the_next_run_begins_with_that_exemplar(
    operator: Actor, learner: Agent, rows: Dataset, cheap: ModelServer
) -> None:
    cheap.brain = Adviser(WORLD, WORLD.helpful[:3])  # what it would find by itself is nothing now and then
    agent_update(operator, learner, reflector=None)
    config = CONFIG | {"n_iterations": 1, "context": CONFIG["context"] | {"exemplars": 3, "max_new": 20}}
    run = run_start(operator, agent=learner, dataset=rows, config=config)
    assert run_to_end(run.job).status == Status.COMPLETED
    made = Experience.objects.filter(agent=learner, kind="exemplar")
    assert 0 < made.count() <= 3 and Experience.objects.filter(agent=learner, kind="experience").exists()
    made.update(status="active")
    began = [one["lesson"] for one in starting_library(learner)]
    assert sum(one["kind"] == "exemplar" for one in began) == made.count()
    assert {one["kind"] for one in run_manifest(run)["experiences"]} == {"experience", "exemplar"}


@runs
def test_a_dear_reflector_can_not_spend_more_than_the_budget(
    operator: Actor, learner: Agent, adam: Any, acme: Any
) -> None:
    priced(adam, acme, "large", (3_000_000_000, 15_000_000_000))  # a question is held for more than the whole budget
    run = run_start(operator, agent=learner, rows=ROWS, config=CONFIG | {"max_budget_usd": 1.0})
    job = run_to_end(run.job)
    assert (job.status, job.status_reason) == (Status.PAUSED, "budget_exceeded")
    run.refresh_from_db()
    assert 0 < run.spent_micros <= 1_000_000 and not Question.objects.filter(job=job).exists()
    assert differences() == []


def spent(run: TrainingRun, **where: str) -> int:
    """Micro-dollars of a job, by its ledger."""
    found: int = LedgerEntry.objects.filter(job_id=run.job_id, **where).aggregate(all=Sum("spent_delta_micros"))["all"]
    return found


@runs
def test_a_reflectors_answers_before_a_pause_are_not_paid_again(
    operator: Actor, learner: Agent, adam: Any, acme: Any, strong: ModelServer
) -> None:
    priced(adam, acme, "large", STRONG)
    limit, stops = 40_000, 0
    run = run_start(operator, agent=learner, rows=ROWS, config=CONFIG | {"max_budget_usd": 0.04})
    while (job := run_to_end(run.job)).status != Status.COMPLETED:
        assert (job.status, job.status_reason) == (Status.PAUSED, "budget_exceeded")
        assert spent(run) <= limit and stops < 20
        limit, stops = limit + 60_000, stops + 1
        budget_set_limit(Actor(adam), organization=acme, job=run.job, agent_id=learner.id, limit_micros=limit)
        job_resume(operator, run.job)
    totals = Question.objects.filter(job=run.job).aggregate(calls=Sum("calls"), cost=Sum("cost_micros"))
    assert stops > 1 and strong.owed.answered == totals["calls"] > 5  # two iterations, groups read whole
    assert spent(run, purpose="reflection") == strong.owed.micros == totals["cost"]
    assert differences() == []


def test_a_launch_is_refused_while_the_reflector_has_no_price(operator: Actor, learner: Agent) -> None:
    with pytest.raises(Invalid, match=r"reflector.*large") as refused:
        run_start(operator, agent=learner, rows=ROWS, config=CONFIG)
    assert "agent" in refused.value.fields and not TrainingRun.objects.exists()
    # It is not asked where nothing is proposed.
    run_start(operator, agent=learner, rows=ROWS, config=CONFIG | {"context": CONFIG["context"] | {"propose": False}})


def test_the_plan_prices_reflection_by_the_reflectors_price(
    operator: Actor, learner: Agent, rows: Dataset, adam: Any, acme: Any, reflector: ModelEndpoint
) -> None:
    priced(adam, acme, "large", STRONG)

    def cost(**changes: Any) -> float:
        agent_update(operator, learner, **changes)
        return float(run_estimate(operator, agent=learner, dataset=rows, config=CONFIG)["cost_usd"])

    own, strong = cost(reflector=None), cost(reflector=reflector)
    assert strong > 1.5 * own
    plan = run_estimate(operator, agent=learner, dataset=rows, config=CONFIG)
    assert plan["reflection"]["model"] == "large" and plan["reflection"]["questions"] == 2 * (4 * 6 + 1)
    assert strong - own < plan["reflection"]["cost_usd"] < strong
    priced(adam, acme, "large", CHEAP)
    assert cost() == own
    assert cost(objective="A good answer is short. " * 40) > own  # what is shown with each question


def test_questions_to_an_earlier_reflector_do_not_price_those_to_another(
    operator: Actor, learner: Agent, rows: Dataset, adam: Any, acme: Any
) -> None:
    priced(adam, acme, "large", STRONG)
    fresh = run_estimate(operator, agent=learner, dataset=rows, config=CONFIG)
    assert not fresh["measured"]
    run = run_start(operator, agent=learner, rows=ROWS, config=CONFIG)
    Job.objects.filter(id=run.job_id).update(status=Status.CANCELLED, worked_ms=4_000)
    TrainingRun.objects.filter(job=run.job).update(trajectories=50)
    common = {"organization_id": acme.id, "job_id": run.job_id, "agent_id": learner.id, "kind": "settle"}
    common |= {"at": timezone.now(), "model": "small"}
    LedgerEntry.objects.bulk_create(
        [
            *(LedgerEntry(**common, purpose="training", rollout=f"1/0/{n}", spent_delta_micros=400) for n in range(50)),
            *(LedgerEntry(**common, purpose="reflection", spent_delta_micros=10) for _ in range(50)),
        ]
    )
    estimate = run_estimate(operator, agent=learner, dataset=rows, config=CONFIG)
    agent_update(operator, learner, reflector=None)
    itself = run_estimate(operator, agent=learner, dataset=rows, config=CONFIG)
    assert estimate["measured"] and itself["measured"] and estimate["cost_usd"] > itself["cost_usd"] * 1.5


def test_an_endpoint_that_reflects_for_an_agent_can_not_be_archived(
    operator: Actor, adam: Any, learner: Agent, reflector: ModelEndpoint
) -> None:
    with pytest.raises(Conflict, match="Learner"):
        endpoint_archive(Actor(adam), reflector)
    agent_archive(operator, learner)
    assert endpoint_archive(Actor(adam), reflector).archived_at is not None


def test_a_reflector_of_another_organisation_is_not_there(
    operator: Actor, learner: Agent, elsewhere: Any, strong: ModelServer
) -> None:
    boss = UserFactory(username="boris")
    MembershipFactory(organization=elsewhere, user=boss, role="admin")
    theirs = endpoint_create(Actor(boss), name="theirs", base_url=strong.base_url, model="large", api_key="sk-theirs-1")
    with pytest.raises(Missing):
        agent_update(operator, learner, reflector=theirs)


def test_rest_and_the_form_set_a_reflector_and_objectives(
    olivia: Any, learner: Agent, reflector: ModelEndpoint
) -> None:
    client = Client()
    client.force_login(olivia)
    at = f"/api/v1/agents/{learner.slug}"
    body = client.get(at).json()
    assert (body["reflector_id"], body["reflector_model"], body["objective"]) == (str(reflector.pk), "", "")
    given = {"reflector": None, "reflector_model": "larger", "objective": "Short.", "learning_objective": "Sums."}
    changed = client.patch(at, given, content_type="application/json").json()
    assert {name: changed[name] for name in given if name != "reflector"} == {
        name: value for name, value in given.items() if name != "reflector"
    }
    assert changed["reflector_id"] is None
    for wrong in ({"objective": "x" * 2001}, {"learning_objective": "x" * 2001}, {"reflector_model": "x" * 121}):
        assert client.patch(at, wrong, content_type="application/json").status_code == 400
    assert client.patch(at, {"reflector": "none such"}, content_type="application/json").status_code == 404
    _form_keeps(client, learner, reflector)


def _form_keeps(client: Client, learner: Agent, reflector: ModelEndpoint) -> None:
    page = f"/agents/{learner.pk}/edit/"
    assert "larger" in html(client.get(page))
    values = {
        "name": "Learner", "philosophy": "cot", "runtime": "llm", "environment": "dataset",
        "endpoint": str(learner.endpoint_id), "max_tokens": "200", "reflector": str(reflector.pk),
        "objective": "Short and right.",
    }  # fmt: skip
    assert client.post(page, values).status_code == 302
    learner.refresh_from_db()
    assert (learner.reflector, learner.reflector_model, learner.objective) == (reflector, "", "Short and right.")
    shown = html(client.get(f"/agents/{learner.pk}/"))
    assert "Short and right." in shown and "at strong" in shown
