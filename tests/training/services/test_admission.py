"""One plan, one rule: what the plan says would be refused is refused, and nothing else is."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from agentcore_site.audit.models import AuditEvent
from agentcore_site.jobs.models import Job, Status
from agentcore_site.lib.errors import Conflict, DomainError, Forbidden, Insufficient, Invalid, TooMany
from agentcore_site.lib.money_format import money
from agentcore_site.tenancy.actors import Actor
from budgets.models import Budget, LedgerEntry, Scope
from budgets.services import budget_set_limit, price_set
from experiences.agents.services.agents import agent_archive, agent_create
from experiences.agents.services.datasets import dataset_create
from experiences.agents.services.endpoints import endpoint_create
from experiences.models import Agent, Dataset, ModelEndpoint
from tests.console.conftest import console, signed_in  # noqa: F401
from tests.console.test_launch import text
from tests.support.rows import queued_run
from training.data.uploads import read_rows
from training.models import TrainingRun
from training.services.runs import run_estimate, run_start

pytestmark = pytest.mark.django_db

ROWS = [{"query": f"What is {i} + {i}?", "expected_outcome": {"answer": str(2 * i)}} for i in range(60)]
CONFIG: dict[str, Any] = {
    "n_iterations": 30,
    "batch_size": 4,
    "n_trajectories_per_query": 4,
    "eval_samples": 2,
    "selection_share": 0.1,
    "selection_least": 1,
    "context": {"gate_samples": 2, "gate_steps": 1, "accept_weak_gate": True},
}


@pytest.fixture
def reader(acme: Any, adam: Any) -> Agent:
    price_set(Actor(adam), model="small", organization=acme, input_micros=150_000, output_micros=600_000)
    endpoint: ModelEndpoint = endpoint_create(
        Actor(adam), name="reader", kind="openai", base_url="http://127.0.0.1:9/v1", model="small"
    )
    return agent_create(
        Actor(adam), name="Reader", runtime="llm", philosophy="cot", environment="dataset", endpoint=endpoint
    )


@pytest.fixture
def rows(operator: Actor) -> Dataset:
    return dataset_create(operator, name="sums", rows=ROWS)


@pytest.fixture
def measured(operator: Actor, reader: Agent, rows: Dataset) -> None:
    """The agent's last job: 200 rollouts of 390 to 410 micro-dollars."""
    run = run_start(operator, agent=reader, dataset=rows, config=CONFIG)
    Job.objects.filter(id=run.job_id).update(status=Status.CANCELLED, worked_ms=4_000)
    common = {"organization_id": reader.organization_id, "job_id": run.job_id, "agent_id": reader.id, "kind": "settle"}
    LedgerEntry.objects.bulk_create(
        LedgerEntry(
            **common,
            at=timezone.now(),
            model="small",
            purpose="training",
            rollout=f"1/0/{n}",
            spent_delta_micros=390 + n % 21,
        )
        for n in range(200)
    )
    TrainingRun.objects.filter(job=run.job).update(trajectories=200)


def both(actor: Any, agent: Agent, rows: Dataset, **config: Any) -> tuple[dict[str, Any], DomainError | None]:
    """(the plan, what the launch was refused for)."""
    asked = CONFIG | config
    plan = run_estimate(actor, agent=agent, dataset=rows, config=asked)
    try:
        run_start(actor, agent=agent, dataset=rows, config=asked)
    except DomainError as error:
        return plan, error
    return plan, None


def agrees(plan: dict[str, Any], error: DomainError | None) -> bool:
    return [one["message"] for one in plan["refusals"]][:1] == ([] if error is None else [error.message])


def test_a_budget_that_is_too_small_is_refused_by_both_and_either_repair_is_enough(
    operator: Actor, reader: Agent, rows: Dataset, measured: None
) -> None:
    plan, error = both(operator, reader, rows, max_budget_usd=0.1)
    assert (
        isinstance(error, Insufficient) and agrees(plan, error) and plan["warnings"] == [*plan["warnings"][:0]]
    ) or all("iterations" not in warning for warning in plan["warnings"])
    fewer, raised = plan["refusals"][0]["repairs"]
    assert (fewer["setting"], raised["setting"]) == ("n_iterations", "max_budget_usd")
    assert 0 < fewer["value"] < 30 and fewer["text"] == f"Set iterations to {fewer['value']}"
    assert raised["value"] >= plan["cost_usd_p90"]
    for repair in (fewer, raised):
        mended = {"max_budget_usd": 0.1, repair["setting"]: repair["value"]}
        assert run_estimate(operator, agent=reader, dataset=rows, config=CONFIG | mended)["refusals"] == []
    plan, error = both(operator, reader, rows, max_budget_usd=0.1, n_iterations=fewer["value"])
    assert error is None and agrees(plan, error)


def test_one_iteration_more_than_the_repair_is_refused(
    operator: Actor, reader: Agent, rows: Dataset, measured: None
) -> None:
    plan = run_estimate(operator, agent=reader, dataset=rows, config=CONFIG | {"max_budget_usd": 0.1})
    n = plan["refusals"][0]["repairs"][0]["value"]
    _, error = both(operator, reader, rows, max_budget_usd=0.1, n_iterations=n + 1)
    assert isinstance(error, Insufficient)


def test_a_first_guess_warns_and_is_taken(operator: Actor, reader: Agent, rows: Dataset) -> None:
    plan, error = both(operator, reader, rows, max_budget_usd=0.05)
    assert error is None and plan["refusals"] == [] and plan["cost_basis"] == "guess"
    assert any("the job pauses" in warning for warning in plan["warnings"])


def test_a_first_job_that_cannot_pay_its_first_iteration_is_refused_by_both(
    operator: Actor, reader: Agent, rows: Dataset
) -> None:
    # (6 queries x 2 samples + 4 queries x 4 rollouts) of 197 micro-dollars each, of which a third is certain.
    plan, error = both(operator, reader, rows, max_budget_usd=0.0002)
    assert isinstance(error, Insufficient) and agrees(plan, error) and "max_budget_usd" in error.fields
    assert (
        money(math.ceil(plan["cost_usd"] * 100) * 10_000) in error.message and "a third of the guess" in error.message
    )
    [repair] = plan["refusals"][0]["repairs"]
    assert repair["setting"] == "max_budget_usd"
    _, error = both(operator, reader, rows, max_budget_usd=repair["value"])
    assert error is None


def test_the_months_budget_is_asked_by_both(
    operator: Actor, adam: Any, reader: Agent, rows: Dataset, measured: None
) -> None:
    budget_set_limit(Actor(adam), organization=reader.organization_id, limit_micros=60_000)
    plan, error = both(operator, reader, rows)
    assert isinstance(error, Insufficient) and agrees(plan, error)
    assert "your organisation's budget has $0.06 left" in error.message
    [repair] = plan["refusals"][0]["repairs"]  # a higher budget of the job would not help
    assert repair["setting"] == "n_iterations"
    assert not run_estimate(operator, agent=reader, dataset=rows, config=CONFIG | {"n_iterations": repair["value"]})[
        "refusals"
    ]


def test_a_gate_that_can_hardly_let_anything_through_is_refused_unless_asked_twice(
    operator: Actor, reader: Agent
) -> None:
    few = dataset_create(operator, name="few", rows=ROWS[:12])
    strict = {"selection_share": 0.25, "selection_least": 20, "context": {}}
    plan, error = both(operator, reader, few, **strict)
    assert isinstance(error, Invalid) and agrees(plan, error) and "context.accept_weak_gate" in error.fields
    assert not plan["gate"]["can_ship"] and plan["gate"]["n_queries"] == 4
    needed = int(error.message.split("Give ")[1].split()[0])
    assert 12 < needed < 60
    enough = dataset_create(operator, name="enough", rows=ROWS[:needed])
    assert run_estimate(operator, agent=reader, dataset=enough, config=CONFIG | strict)["refusals"] == []
    [repair] = plan["refusals"][0]["repairs"]
    assert (repair["setting"], repair["value"]) == ("context.accept_weak_gate", True)
    plan, error = both(operator, reader, few, **strict | {"context": {"accept_weak_gate": True}})
    assert error is None and plan["refusals"] == []


def test_the_plan_shows_the_smallest_effect_of_the_gate_and_its_cost(
    console: Client,  # noqa: F811
    operator: Actor,
    reader: Agent,
    rows: Dataset,
    measured: None,
) -> None:
    plan = run_estimate(operator, agent=reader, dataset=rows, config={})
    found = [one["found"] for one in plan["gate"]["power"]]
    assert [one["gain"] for one in plan["gate"]["power"]] == [0.05, 0.1, 0.15, 0.2] and found == sorted(found)
    assert found[-1] > 0.9 and found[0] < 0.3 and all(0 < one["cost_usd"] < 1 for one in plan["gate"]["power"])
    form = {"agent": reader.pk, "source": "dataset", "dataset": rows.pk, "max_budget_usd": "5"}
    shown = text(console.post("/launch/plan/", form))
    assert "accepts a true gain" in shown and "Simulated." in shown


@pytest.mark.parametrize("hurdle", ["busy", "archived", "not recorded", "full", "developer"])
def test_every_obstacle_of_a_launch_is_in_the_plan(
    operator: Actor, dan: Any, adam: Any, reader: Agent, agent: Agent, rows: Dataset, hurdle: str
) -> None:
    actor: Any = operator
    if hurdle == "busy":
        run_start(operator, agent=reader, dataset=rows, config=CONFIG)
    elif hurdle == "archived":
        agent_archive(Actor(adam), reader)
    elif hurdle == "not recorded":
        Agent.objects.filter(id=reader.id).update(collects=False)
    elif hurdle == "full":
        queued_run(operator, agent)
        reader.organization.max_active_jobs = 1
        reader.organization.save()
    else:
        actor = Actor(dan)
    reader.refresh_from_db()
    plan, error = both(actor, reader, rows)
    assert error is not None and agrees(plan, error)
    assert isinstance(error, {"busy": Conflict, "full": TooMany}.get(hurdle, DomainError))


def test_the_button_is_disabled_with_the_reason_and_the_repairs(
    console: Client,  # noqa: F811
    reader: Agent,
    rows: Dataset,
    measured: None,
) -> None:
    form = {"agent": reader.pk, "source": "dataset", "dataset": rows.pk, "n_iterations": "30", "max_budget_usd": "0.5"}
    response = console.post("/launch/plan/", form)
    html, shown = response.content.decode(), text(response)
    assert 'class="button primary wide" disabled' in html
    assert 'data-set="n_iterations"' in html and 'data-set="max_budget_usd"' in html
    assert "is expected to cost" in shown and "the job pauses then" not in shown and "buys" not in shown
    fine = console.post("/launch/plan/", form | {"max_budget_usd": "20"})
    assert "disabled" not in fine.content.decode() and "Launch for up to $20.00" in text(fine)
    assert "up to about" in text(fine) and "nine times of ten" not in text(fine)


def test_the_job_says_the_figure_that_the_plan_said(
    console: Client,  # noqa: F811
    operator: Actor,
    reader: Agent,
    rows: Dataset,
    measured: None,
) -> None:
    plan, _ = both(operator, reader, rows)
    run = TrainingRun.objects.get(job__status=Status.QUEUED)
    Job.objects.filter(id=run.job_id).update(status=Status.RUNNING)
    TrainingRun.objects.filter(job=run.job).update(iteration=3, cost_micros=99_000)
    assert f"expected ${plan['cost_usd']:.2f}" in text(console.get(f"/jobs/{run.pk}/"))


def test_ended_jobs_show_the_spread_around_their_plans(
    operator: Actor, reader: Agent, rows: Dataset, measured: None
) -> None:
    for spent in (90_000, 100_000, 110_000, 120_000, 130_000):
        run = run_start(operator, agent=reader, dataset=rows, config=CONFIG)
        estimate = run.estimate | {"cost_usd": 0.1}
        TrainingRun.objects.filter(job=run.job).update(cost_micros=spent, estimate=estimate, verdict={"verdict": "x"})
        Job.objects.filter(id=run.job_id).update(status=Status.COMPLETED, status_reason="all_iterations")
    plan = run_estimate(operator, agent=reader, dataset=rows, config=CONFIG)
    assert plan["cost_basis"] == "jobs" and 1.2 < plan["cost_usd_p90"] / plan["cost_usd"] < 1.6


def test_the_form_hides_what_changes_nothing_for_the_agent(
    console: Client,  # noqa: F811
    reader: Agent,
    agent: Agent,
) -> None:
    of_model = console.get(f"/launch/?agent={reader.pk}").content.decode()
    of_actions = console.get(f"/launch/?agent={agent.pk}").content.decode()
    for name in ("beta", "credit", "entropy_coef_failed_group"):
        assert f'name="{name}"' not in of_model, name
    assert 'name="features.' in of_actions and 'name="features.' not in of_model
    assert 'name="beta"' in of_actions and 'name="learning_rate"' in of_model


def monthly(agent: Agent) -> int | None:
    return Budget.objects.get(scope=Scope.AGENT, agent_id=agent.pk).limit_micros


def test_a_configuration_sets_or_checks_the_monthly_budget_of_its_agent(
    operator: Actor, adam: Any, reader: Agent, rows: Dataset
) -> None:
    # An operator may not edit budgets: the configuration is refused, by the plan as by the launch.
    plan, error = both(operator, reader, rows, max_monthly_budget_usd=3)
    assert isinstance(error, Forbidden) and agrees(plan, error) and "max_monthly_budget_usd" in error.fields
    _, error = both(Actor(adam), reader, rows, max_monthly_budget_usd=3)
    assert error is None and monthly(reader) == 3_000_000
    assert AuditEvent.objects.filter(action="budget.changed", after__note__startswith="configuration of").exists()
    Job.objects.filter(status=Status.QUEUED).update(status=Status.CANCELLED)
    # A limit that is smaller already is only checked, and is never raised.
    _, error = both(operator, reader, rows, max_monthly_budget_usd=5)
    assert error is None and monthly(reader) == 3_000_000
    Job.objects.filter(status=Status.QUEUED).update(status=Status.CANCELLED)
    # What does not fit the month's budget is refused as it is elsewhere, and nothing is set.
    _, error = both(Actor(adam), reader, rows, max_monthly_budget_usd=0.0001)
    assert isinstance(error, Insufficient) and "this agent's budget" in error.message and monthly(reader) == 3_000_000
    Budget.objects.filter(scope=Scope.AGENT, agent_id=reader.pk).update(spent_micros=2_000_000)
    _, error = both(Actor(adam), reader, rows, max_monthly_budget_usd=1)
    assert isinstance(error, Invalid) and "$2.00 are spent" in error.message and monthly(reader) == 3_000_000


def test_images_of_queries_are_part_of_the_first_guess(operator: Actor, reader: Agent) -> None:
    def cost(images: int) -> float:
        rows = []
        for at in range(60):
            parts: list[dict[str, Any]] = [{"type": "text", "text": f"Number {at} of {images}?"}]
            parts += [
                {"type": "image_url", "image_url": {"url": f"https://example.com/{n}.png"}} for n in range(images)
            ]
            rows.append({"messages": [{"role": "user", "content": parts}, {"role": "assistant", "content": str(at)}]})
        read = read_rows("q.jsonl", json.dumps(rows).encode())
        dataset = dataset_create(operator, name=f"{images} images", rows=read)
        return float(run_estimate(operator, agent=reader, dataset=dataset, config=CONFIG)["cost_usd"])

    none, one, two = cost(0), cost(1), cost(2)
    assert one > 1.3 * none and two - one == pytest.approx(one - none, rel=0.01)
