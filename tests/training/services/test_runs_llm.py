"""Jobs of language-model agents over real rows, a real ledger and a real server: money, outages, the server's bill."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.utils import timezone

from agentcore_site.jobs import lifecycle
from agentcore_site.jobs.models import Job, JobEvent, Status
from agentcore_site.jobs.services import job_cancel, job_resume
from agentcore_site.lib.errors import Conflict, Forbidden, Insufficient, Invalid
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from budgets.ledger.reconciliation import differences
from budgets.models import Budget, BudgetSettings, LedgerEntry
from budgets.services import budget_set_limit, price_set
from evaluation.models import EvaluationRun
from evaluation.services import evaluation_start
from experiences.agents.services.agents import agent_create, agent_update
from experiences.agents.services.endpoints import endpoint_create, endpoint_test
from experiences.agents.services.tool_servers import tool_server_archive, tool_server_create, tool_server_offer
from experiences.models import Agent, ModelEndpoint, TrajectoryRecord
from experiences.playbooks.services.playbooks import playbook_create, playbook_edit
from experiences.rollouts.rewards.base import Payment, rewards
from experiences.rollouts.types import Trajectory
from tests.experiences.rollouts.runtimes.test_what_comes_back import RULES, Strict
from tests.support.agent_server import AgentServer, Ask
from tests.support.llm_server import ModelServer
from tests.support.mcp_server import MCPHTTP
from tests.support.pages import html
from tests.support.running import run_to_end
from training.exports.metric_files import MetricFile, per_epoch
from training.models import Iteration, PolicyCheckpoint, TrainingRun
from training.selectors.runs import run_series
from training.services.runs import run_estimate, run_start

pytestmark = pytest.mark.django_db(transaction=True)

ROWS = [{"query": f"What is {n} + {n + 3}?", "expected_outcome": {"answer": 2 * n + 3}} for n in range(40)]
CONFIG = {
    "n_iterations": 3,
    "batch_size": 2,
    "n_trajectories_per_query": 3,
    "eval_interval": 2,
    "eval_samples": 1,
    "max_budget_usd": 0.5,
    "max_concurrent_rollouts": 4,
    "selection_share": 0.1,
    "selection_least": 1,
    # Nothing is proposed, so that it ships what it began with, and nothing is proven unless a person asks.
    "context": {"propose": False, "gate_samples": 1, "gate_steps": 1, "accept_weak_gate": True},
    "seed": 3,
}
PRICE = (2_000_000, 8_000_000)  # micro-dollars per million tokens


def adding(messages: list[dict[str, Any]]) -> str:
    """A model that adds well, but for every third question."""
    a, b = map(int, re.findall(r"(\d+) \+ (\d+)", messages[1]["content"])[0])
    return f"Answer: {a + b + (1 if a % 3 == 0 else 0)}"


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(brain=adding, prices={"small": PRICE}) as running:
        yield running


@pytest.fixture
def model_agent(adam: Any, server: ModelServer) -> Agent:
    actor = Actor(adam)
    price_set(
        actor,
        model="small",
        organization=adam.memberships.get().organization,
        input_micros=PRICE[0],
        output_micros=PRICE[1],
    )
    endpoint = endpoint_create(
        actor, name="local", base_url=server.base_url, model="small", api_key="sk-test-123", options={"max_retries": 0}
    )
    return agent_create(
        actor, name="Adder", runtime="llm", philosophy="cot", environment="dataset", endpoint=endpoint, max_tokens=40
    )


def start(actor: Actor, agent: Agent, **changes: Any) -> TrainingRun:
    return run_start(actor, agent=agent, rows=ROWS, config=CONFIG | changes)


def test_job_runs_to_its_end_and_the_ledger_says_what_the_server_says(
    operator: Actor, model_agent: Agent, server: ModelServer
) -> None:
    run = start(operator, model_agent)
    job = run_to_end(run.job)
    assert (job.status, job.error) == (Status.COMPLETED, "")
    run.refresh_from_db()
    kept = TrajectoryRecord.objects.filter(job_id=job.id, purpose="training")
    assert kept.count() == 3 * 2 * 3
    assert set(kept.values_list("model", flat=True)) == {"small"}
    assert 0 < kept.filter(success=True).count() < kept.count()
    assert kept.filter(tokens=0).count() == 0
    assert not EvaluationRun.objects.filter(run=run).exists()
    evaluation = evaluation_start(operator, run=run)
    assert run_to_end(evaluation.job).status == Status.COMPLETED
    run.refresh_from_db()
    assert run.spent_micros == server.owed.micros > run.cost_micros > 0
    budget = Budget.objects.get(job_id=job.id)
    assert (budget.spent_micros, budget.reserved_micros, budget.debt_micros) == (server.owed.micros, 0, 0)
    calls = LedgerEntry.objects.filter(job_id=job.id, kind="settle")
    assert calls.count() == server.owed.answered
    # Each look and each arm made calls of its own: a name that came twice would have failed its rollout.
    assert not TrajectoryRecord.objects.filter(agent_id=model_agent.id).exclude(error="").exists()
    measured = evaluation.__class__.objects.get(pk=evaluation.pk).report["lines"]["held_out"]["metrics"]["success_rate"]
    assert 0 < measured["trained"] == measured["baseline"] < 1
    assert run.selection["success_rate"] == run.selection["baseline_success_rate"] > 0
    assert sum(calls.values_list("input_tokens", flat=True)) == server.owed.prompt_tokens
    # The curve of costs is what the ledger says, looks at the selection queries included, and ends where the run did.
    curve = [point["cost_usd"] for point in run_series(run)["iterations"]]
    proof = sum(calls.filter(rollout__contains="held_out").values_list("cost_micros", flat=True))
    assert curve == sorted(curve) and run.cost_micros < 1e6 * curve[-1] <= run.spent_micros - proof
    assert {"training", "evaluation"} == set(calls.values_list("purpose", flat=True))
    assert differences() == []
    assert server.requests[0].key == "sk-test-123"


def test_job_pauses_at_its_budget_and_goes_on_when_the_budget_is_raised(
    operator: Actor, adam: Any, model_agent: Agent, server: ModelServer
) -> None:
    whole = start(operator, model_agent)
    run_to_end(whole.job)
    needed = server.owed.micros
    limit = int(needed * 0.5) + 1_100  # the last call needs room for its worst case
    run = start(operator, model_agent)
    budget_set_limit(
        Actor(adam), organization=run.organization_id, job=run.job, agent_id=model_agent.id, limit_micros=limit
    )
    before = server.owed.micros
    job = run_to_end(run.job)
    assert (job.status, job.status_reason) == (Status.PAUSED, "budget_exceeded"), job.error
    spent = server.owed.micros - before
    budget = Budget.objects.get(job_id=job.id)
    assert budget.spent_micros == spent <= limit and budget.reserved_micros == 0
    done = Iteration.objects.filter(run=run).count()
    kept = TrajectoryRecord.objects.filter(job_id=job.id, purpose="training").count()
    assert kept > 0
    budget_set_limit(
        Actor(adam), organization=run.organization_id, job=job, agent_id=model_agent.id, limit_micros=10 * needed
    )
    job_resume(operator, job)
    assert run_to_end(job).status == Status.COMPLETED
    assert Iteration.objects.filter(run=run).count() == 3 >= done
    assert TrajectoryRecord.objects.filter(job_id=job.id, purpose="training").count() == 18
    # What was kept before the pause was not asked again.
    assert server.owed.micros - before < 1.5 * needed
    assert differences() == []


def test_a_pilot_says_what_a_longer_run_will_cost(operator: Actor, model_agent: Agent, server: ModelServer) -> None:
    guess = run_estimate(operator, agent=model_agent, n_queries=len(ROWS), config=CONFIG)
    assert not guess["measured"] and guess["cost_usd_p90"] > guess["cost_usd"] > 0
    pilot = start(operator, model_agent, n_iterations=2)
    run_to_end(pilot.job)
    longer = CONFIG | {"n_iterations": 10, "eval_interval": 10}
    found = run_estimate(operator, agent=model_agent, n_queries=len(ROWS), config=longer)
    assert found["measured"] and found["cost_usd"] <= found["cost_usd_p90"]
    run = start(operator, model_agent, n_iterations=10, eval_interval=10)
    run_to_end(run.job)
    run_to_end(evaluation_start(operator, run=run).job)
    run.refresh_from_db()
    assert run.spent_micros / 1e6 == pytest.approx(found["cost_usd"], rel=0.1)


def test_the_cost_of_another_model_is_no_measurement(operator: Actor, adam: Any, model_agent: Agent) -> None:
    run_to_end(start(operator, model_agent).job)
    actor = Actor(adam)
    other = agent_create(
        actor, name="Other", runtime="llm", philosophy="cot", environment="dataset", endpoint=model_agent.endpoint
    )
    assert not run_estimate(operator, agent=other, n_queries=len(ROWS), config=CONFIG)["measured"]
    other.model = "unheard-of"
    other.save()
    with pytest.raises(Invalid, match="no price for the model 'unheard-of'"):
        run_estimate(operator, agent=other, n_queries=len(ROWS), config=CONFIG)
    organization = adam.memberships.get().organization
    price_set(actor, model="small", organization=organization, input_micros=10 * PRICE[0], output_micros=10 * PRICE[1])
    before = dear(operator, model_agent)
    price_set(actor, model="small", organization=organization, input_micros=PRICE[0], output_micros=PRICE[1])
    assert before == pytest.approx(10 * dear(operator, model_agent), rel=0.05)  # today's price counts


def dear(operator: Actor, agent: Agent) -> float:
    found = run_estimate(operator, agent=agent, n_queries=len(ROWS), config=CONFIG)
    assert found["measured"]
    return float(found["cost_usd"])


def test_the_plan_sees_what_the_month_has_left(operator: Actor, adam: Any, model_agent: Agent) -> None:
    budget_set_limit(Actor(adam), organization=model_agent.organization_id, limit_micros=20_000)
    found = run_estimate(operator, agent=model_agent, n_queries=len(ROWS), config=CONFIG)
    [refused] = found["refusals"]
    assert "your organisation's budget has $0.02 left of $0.02" in refused["message"]
    assert found["affordable_iterations"] < CONFIG["n_iterations"]


def test_an_outage_pauses_a_run_which_resumes_by_itself(
    operator: Actor, model_agent: Agent, server: ModelServer
) -> None:
    run = start(operator, model_agent)
    server.faults = {"error_503": 1.0}
    job = run_to_end(run.job)
    assert (job.status, job.status_reason) == (Status.PAUSED, "waiting_for_llm")
    assert job.not_before is not None and job.error
    assert lifecycle.resume_waiting() == 0
    Job.objects.filter(id=job.id).update(not_before=job.created_at)
    server.faults = {}
    assert lifecycle.resume_waiting() == 1
    assert run_to_end(job).status == Status.COMPLETED


def test_a_run_waits_while_no_name_is_resolved(operator: Actor, model_agent: Agent, server: ModelServer) -> None:
    mine = ModelEndpoint.objects.filter(pk=model_agent.endpoint_id)
    run = start(operator, model_agent)
    mine.update(base_url="http://models.invalid/v1")
    job = run_to_end(run.job)
    assert (job.status, job.status_reason) == (Status.PAUSED, "waiting_for_llm") and not server.requests
    assert "host's name is not known" in job.error and Budget.objects.get(job_id=job.id).spent_micros == 0
    mine.update(base_url=server.base_url)
    Job.objects.filter(id=job.id).update(not_before=job.created_at)
    assert lifecycle.resume_waiting() == 1
    assert run_to_end(job).status == Status.COMPLETED


def test_a_key_that_is_refused_pauses_the_run_with_the_reason(
    operator: Actor, model_agent: Agent, server: ModelServer
) -> None:
    run = start(operator, model_agent)
    server.keys = {"another"}
    job = run_to_end(run.job)
    assert (job.status, job.status_reason) == (Status.PAUSED, "llm_refused")
    assert "sk-test-123" not in job.error
    assert Budget.objects.get(job_id=job.id).spent_micros == 0


def test_a_model_without_a_price_is_refused_at_the_start(operator: Actor, model_agent: Agent) -> None:
    model_agent.model = "unheard-of"
    model_agent.save()
    with pytest.raises(Invalid, match="no price for the model 'unheard-of'"):
        start(operator, model_agent)


def test_a_month_that_is_used_up_refuses_the_start(operator: Actor, adam: Any, model_agent: Agent) -> None:
    budget_set_limit(Actor(adam), organization=model_agent.organization_id, limit_micros=1)
    with pytest.raises(Insufficient, match="your organisation's budget"):
        start(operator, model_agent)


def test_the_connection_test_shows_model_price_latency_and_a_sample(
    adam: Any, model_agent: Agent, server: ModelServer
) -> None:
    server.brain = lambda _: "I am ready."
    found = endpoint_test(Actor(adam), endpoint=model_agent.endpoint, agent_id=model_agent.id)
    assert (found.ok, found.sample, found.model) == (True, "I am ready.", "small")
    assert found.price is not None and found.price.input_micros == PRICE[0]
    assert found.cost_micros == server.owed.micros > 0
    server.keys = set()
    refused = endpoint_test(Actor(adam), endpoint=model_agent.endpoint)
    assert not refused.ok and "sk-test-123" not in refused.message


def test_without_a_solved_query_page_events_and_report_say_that_nothing_can_be_shown(
    operator: Actor, model_agent: Agent, server: ModelServer, client: Any
) -> None:
    server.brain = lambda _: "Answer: -1"
    run = start(operator, model_agent)
    assert run_to_end(run.job).status == Status.COMPLETED
    warned = [one.message for one in JobEvent.objects.filter(job=run.job, type="warning").order_by("seq")]
    assert warned[0].startswith("No selection query was solved before training (0 of 3)")
    never = "No query was ever solved in validation: 0 of 3. Nothing can be shown."
    assert warned[-1].startswith(never)
    client.force_login(operator.user)
    page = html(client.get(f"/jobs/{run.pk}/"))
    assert never in page and "not measured yet" not in page  # it has ended: nothing more will be measured
    assert client.get(f"/api/v1/training-jobs/{run.pk}").json()["warnings"][-1].startswith(never)
    evaluation = evaluation_start(operator, run=run)
    run_to_end(evaluation.job)
    verdict = EvaluationRun.objects.get(pk=evaluation.pk).report["verdict"]
    assert "No query was ever solved on" in verdict and "nothing can be shown" in verdict
    server.brain = adding
    other = start(operator, model_agent)
    run_to_end(other.job)
    assert "ever solved" not in html(client.get(f"/jobs/{other.pk}/"))
    assert not JobEvent.objects.filter(job=other.job, message__contains="solved").exists()


def test_a_reward_that_runs_out_of_time_ends_the_epoch_with_its_figures_kept(
    operator: Actor, model_agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Late:
        """Pays twelve rollouts; then its service is away."""

        description, option_help = "Late.", {}
        left = 12

        def __call__(self, options: Any) -> Any:
            def late(trajectory: Trajectory) -> Payment:
                self.left -= 1
                if self.left < 0:
                    raise TimeoutError("the scorer's service did not answer")
                return Payment.at_the_end(trajectory, {"outcome": trajectory.outcome})

            return late

    late = Late()
    monkeypatch.setitem(rewards._items, "late", late)
    # Three validations of the start (3 queries x 1), then six rollouts an iteration: one iteration ends, and no second.
    run = start(operator, model_agent, reward="late", context=CONFIG["context"] | {"epochs": 1})
    job = run_to_end(run.job)
    assert (job.status, job.status_reason) == (Status.PAUSED, "reward_timeout")
    assert "The reward late ran out of time: the scorer's service did not answer." in job.error
    figures = per_epoch(TrainingRun.objects.select_related("job").get(pk=run.pk))
    assert not figures["complete"] and [one["rollouts"] for one in figures["epochs"]] == [6]
    assert figures["averages"]["success_rate"] is not None and len(MetricFile.of(run).lines(None)[1].splitlines()) == 2
    late.left = 1_000
    job_resume(operator, run.job)
    assert run_to_end(run.job).status == Status.COMPLETED
    assert Iteration.objects.filter(run=run).count() == 3
    assert differences() == []


def test_a_foreign_agent_over_http_is_trained_and_paid_for_like_ours(
    operator: Actor, adam: Any, model_agent: Agent, server: ModelServer
) -> None:
    def theirs(asked: dict[str, Any], ask: Ask) -> str:
        said = ask({"role": "system", "content": "Add."}, {"role": "user", "content": asked["query"]})
        return str(said["choices"][0]["message"]["content"])

    with AgentServer(theirs) as foreign:
        agent = agent_create(
            Actor(adam),
            name="Theirs",
            runtime="http",
            environment="dataset",
            endpoint=model_agent.endpoint,
            url=foreign.url,
            max_tokens=40,
        )
        run = start(operator, agent, max_steps=3)
        job = run_to_end(run.job)
    assert (job.status, job.error) == (Status.COMPLETED, "")
    kept = TrajectoryRecord.objects.filter(job_id=job.id, purpose="training")
    assert kept.count() == 18 and kept.filter(n_steps=2).count() == 18
    assert Budget.objects.get(job_id=job.id).spent_micros == server.owed.micros > 0
    assert differences() == []


def test_an_agent_that_drops_its_context_is_noticed_in_training_and_refused_unless_asked_for_twice(
    operator: Actor, adam: Any, model_agent: Agent, client: Any
) -> None:
    def drops(asked: dict[str, Any], ask: Ask) -> str:
        said = ask({"role": "system", "content": "Add."}, {"role": "user", "content": asked["query"]})
        return str(said["choices"][0]["message"]["content"])

    def passes_on(asked: dict[str, Any], ask: Ask) -> str:
        head = {"role": "system", "content": f"Add.\n{asked['system']}"}
        return str(ask(head, {"role": "user", "content": asked["query"]})["choices"][0]["message"]["content"])

    def trained(work: Any, **context: Any) -> TrainingRun:
        with AgentServer(work) as foreign:
            agent_update(Actor(adam), agent, url=foreign.url)
            run = start(operator, agent, n_iterations=1, context=CONFIG["context"] | context)
            assert run_to_end(run.job).status == Status.COMPLETED
        agent.refresh_from_db()
        return run

    settings = {"runtime": "http", "environment": "dataset", "endpoint": model_agent.endpoint, "max_tokens": 40}
    agent = agent_create(Actor(adam), name="Theirs", url="http://127.0.0.1:9/", **settings)
    playbook = playbook_create(Actor(adam), agent=agent)
    playbook_edit(Actor(adam), playbook, type="add", category="strategies", content="Carry the one.")
    run = trained(drops)
    assert agent.context_arrives is False
    assert "It is not known whether the context" in str(run.estimate["warnings"])
    warned = JobEvent.objects.filter(job=run.job, type="warning", message__contains="does not reach its model")
    assert warned.count() == 1
    states = [step["state"] for row in kept_of(run) for step in row.steps]
    assert not any(state.get("told", {}).get("lessons") for state in states)
    assert any("dropped_context" in state for state in states)
    with pytest.raises(Invalid, match="does not reach its model") as caught:
        start(operator, agent)
    assert "context.accept_dropped_context" in caught.value.fields
    client.force_login(operator.user)
    form = {"agent": agent.pk, "source": "dataset", "dataset": run.dataset_id, "preset": "recommended"}
    plan = html(client.post("/launch/plan/", form))
    assert "does not reach its model" in plan and 'data-set="context.accept_dropped_context"' in plan
    again = start(operator, agent, context=CONFIG["context"] | {"accept_dropped_context": True})
    assert again.job.status == Status.QUEUED
    job_cancel(operator, again.job)
    served = [step["state"]["told"]["lessons"] for row in kept_of(trained(passes_on)) for step in row.steps[:1]]
    assert agent.context_arrives is True and any(served)
    Agent.objects.filter(pk=agent.pk).update(context_arrives=False)
    agent = agent_update(Actor(adam), agent, inject_context=True)
    job_cancel(operator, start(operator, agent).job)  # not refused: the gateway will put the context into its calls
    served = [step["state"]["told"]["lessons"] for row in kept_of(trained(drops)) for step in row.steps[:1]]
    assert agent.context_arrives is True and any(served)


def kept_of(run: TrainingRun) -> list[Any]:
    return list(TrajectoryRecord.objects.filter(job_id=run.job_id, purpose="training"))


def test_only_an_admin_says_where_a_foreign_agent_lives(operator: Actor, model_agent: Agent) -> None:
    with pytest.raises(Forbidden):
        agent_create(
            operator, name="T", runtime="http", environment="dataset", endpoint=model_agent.endpoint, url="http://a.b/c"
        )


def test_an_agent_that_may_not_be_recorded_is_not_trained(operator: Actor, model_agent: Agent) -> None:
    agent_update(operator, model_agent, collects=False)
    with pytest.raises(Conflict, match="may not be recorded"):
        start(operator, model_agent)


def test_an_evaluation_without_money_pauses_and_goes_on_when_there_is_some(
    operator: Actor, adam: Any, model_agent: Agent, server: ModelServer, client: Any
) -> None:
    run = start(operator, model_agent)
    run_to_end(run.job)
    spent = Budget.objects.get(job_id=run.pk).spent_micros
    limits = {"organization": run.organization_id, "job": run.job, "agent_id": model_agent.id}
    budget_set_limit(Actor(adam), limit_micros=spent + 1_200, **limits)
    job = run_to_end(evaluation_start(operator, run=run).job)
    assert (job.status, job.status_reason) == (Status.PAUSED, "budget_exceeded")
    client.force_login(operator.user)
    shown = html(client.get(f"/evaluations/{job.pk}/"))
    assert "Resume" in shown and "budget" in shown
    budget_set_limit(Actor(adam), limit_micros=spent + 1_000_000, **limits)
    assert client.post(f"/evaluations/{job.pk}/resume/").status_code == 302
    assert run_to_end(job).status == Status.COMPLETED
    assert differences() == []


def test_an_agent_calls_the_tools_of_an_mcp_server(
    operator: Actor, adam: Any, model_agent: Agent, server: ModelServer
) -> None:
    def brain(messages: list[dict[str, Any]]) -> Any:
        if messages[-1]["role"] == "tool":
            return f"Answer: {messages[-1]['content']}"
        a, b = map(int, re.findall(r"(\d+) \+ (\d+)", messages[1]["content"])[0])
        function = {"name": "sums__add", "arguments": json.dumps({"a": a, "b": b})}
        call = {"id": "c1", "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    server.brain = brain
    with MCPHTTP() as offering:
        tools = tool_server_create(Actor(adam), name="sums", url=offering.url, token="tok-1", tools=["add"])
        offered = tool_server_offer(operator, tools)
        assert offered.ok and [tool.name for tool in offered.tools] == ["sums__add"]
        agent_update(operator, model_agent, philosophy="react", tool_servers=[tools])
        run = start(operator, model_agent, n_iterations=1)
        assert run_to_end(run.job).status == Status.COMPLETED
    assert {one.get("authorization") for one in offering.seen} == {"Bearer tok-1"} and "tok-1" not in tools.token
    kept = TrajectoryRecord.objects.filter(job_id=run.pk, purpose="training")
    assert kept.count() == 6 and kept.filter(success=True).count() == 6, kept.first().steps  # type: ignore[union-attr]
    assert kept.first().steps[0]["action"]["tool"] == "sums__add"  # type: ignore[union-attr]


def test_without_its_tool_server_no_agent_is_measured(operator: Actor, adam: Any, model_agent: Agent) -> None:
    tools = tool_server_create(Actor(adam), name="gone", url="http://127.0.0.1:9/mcp")
    granted = {str(tools.pk): ["add"]}
    agent_update(operator, model_agent, philosophy="react", tool_servers=[tools], granted_tools=granted)
    job = run_to_end(start(operator, model_agent).job)
    assert (job.status, job.status_reason) == (Status.PAUSED, "waiting_for_llm") and "gone" in job.error
    assert not TrajectoryRecord.objects.filter(job_id=job.id, purpose="training").exists()
    tool_server_archive(Actor(adam), tools)
    assert list(model_agent.tool_servers.all()) == []


def test_a_command_that_the_site_does_not_allow_is_refused(adam: Any) -> None:
    with pytest.raises(Invalid, match="MCP_COMMANDS"):
        tool_server_create(Actor(adam), name="shell", transport="stdio", command="bash -c 'rm -rf /'")


def test_a_service_that_stays_away_is_asked_less_and_less_often(
    operator: Actor, model_agent: Agent, server: ModelServer
) -> None:
    run = start(operator, model_agent)
    server.faults = {"error_503": 1.0}
    ModelEndpoint.objects.update(options={"max_retries": 0, "retry_s": 1})
    waits = []
    for _ in range(4):
        job = run_to_end(run.job)
        assert (job.status, job.status_reason) == (Status.PAUSED, "waiting_for_llm")
        waits.append((job.not_before - timezone.now()).total_seconds())
        Job.objects.filter(id=job.id).update(not_before=job.created_at)
        assert lifecycle.resume_waiting() == 1
    assert waits == [pytest.approx(15 * 2**n, abs=2) for n in range(4)]
    job = run_to_end(run.job)
    job_resume(operator, job)  # a person knows better
    job = run_to_end(run.job)
    assert (job.not_before - timezone.now()).total_seconds() < 16


def test_the_owner_of_a_job_sees_its_spending_when_its_budget_is_used_up(
    operator: Actor, adam: Any, model_agent: Agent, server: ModelServer
) -> None:
    run = start(operator, model_agent)
    budget_set_limit(
        Actor(adam), organization=run.organization_id, job=run.job, agent_id=model_agent.id, limit_micros=3_500
    )
    job = run_to_end(run.job)
    assert (job.status, job.status_reason) == (Status.PAUSED, "budget_exceeded")
    bill = job.events.get(type="bill")
    assert bill.data["stopped_by"] == "job" and bill.data["spent_usd"] * 1e6 == pytest.approx(server.owed.micros)
    assert {one["name"] for one in bill.data["by_purpose"]} <= {"training", "evaluation"}
    assert [one["name"] for one in bill.data["by_model"]] == ["small"]
    assert bill.seq < job.events.get(type="paused").seq
    # What was kept at the stop is there to go on from, and to be looked at.
    assert PolicyCheckpoint.objects.filter(run=run).exists()


@pytest.mark.parametrize("broken", ["cut_body", "html", "empty"])
def test_broken_answers_pause_a_run_and_train_nothing(
    operator: Actor, model_agent: Agent, server: ModelServer, broken: str
) -> None:
    """A proxy that cuts every answer, or puts a page in its place."""
    run = start(operator, model_agent)
    server.faults = {broken: 1.0}
    job = run_to_end(run.job)
    assert (job.status, job.status_reason) == (Status.PAUSED, "waiting_for_llm"), job.error
    assert not TrajectoryRecord.objects.filter(job_id=job.id).exists()
    assert not Iteration.objects.filter(run=run).exists()
    Job.objects.filter(id=job.id).update(not_before=job.created_at)
    server.faults = {}
    assert lifecycle.resume_waiting() == 1
    assert run_to_end(job).status == Status.COMPLETED
    assert not TrajectoryRecord.objects.filter(job_id=job.id).exclude(error="").exists()
    assert differences() == []


def test_a_job_whose_money_goes_to_calls_without_an_answer_pauses_and_says_so(
    operator: Actor, model_agent: Agent, server: ModelServer, settings: Any
) -> None:
    """Every second call is a 500 that says nothing: charged as held, and never often enough to open the circuit."""
    settings.SPENDING_BRAKE_FLOOR_USD = 0.002
    ModelEndpoint.objects.update(options={"max_retries": 6})
    server.faults = {"error_500": 0.6}
    run = start(operator, model_agent)
    job = run_to_end(run.job)
    assert (job.status, job.status_reason) == (Status.PAUSED, "spends_too_fast"), job.error
    assert "in the last minute" in job.error and "a minute stops it" in job.error
    assert not TrajectoryRecord.objects.filter(job_id=job.id).exclude(error="").exists()
    assert differences() == []


def test_a_job_waits_at_its_organisations_spending_limit_per_minute(
    operator: Actor, model_agent: Agent, acme: Organization, server: ModelServer
) -> None:
    BudgetSettings.objects.create(organization=acme, most_per_minute_micros=1)
    job = run_to_end(start(operator, model_agent).job)
    assert (job.status, job.status_reason) == (Status.PAUSED, "spending_rate"), job.error
    assert "a minute" in job.error and job.not_before
    BudgetSettings.objects.update(most_per_minute_micros=None)
    Job.objects.filter(id=job.id).update(not_before=job.created_at)
    assert lifecycle.resume_waiting() == 1
    assert run_to_end(job).status == Status.COMPLETED
    assert not TrajectoryRecord.objects.filter(job_id=job.id).exclude(error="").exists()
    assert differences() == []


@pytest.mark.parametrize("rule", ["Gemini", "DeepSeek"])
def test_a_job_sends_back_what_its_service_wants_back(operator: Actor, model_agent: Agent, rule: str) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "calculator", "arguments": '{"text": "2+2"}'}}
    said = RULES[rule] | {"tool_calls": [RULES[rule]["tool_calls"][0] | call]}
    Agent.objects.filter(pk=model_agent.pk).update(philosophy="react", tools=["calculator"])
    model_agent.refresh_from_db()
    with ModelServer(brain=(brain := Strict(said)), prices={"small": PRICE}) as strict:
        ModelEndpoint.objects.filter(pk=model_agent.endpoint_id).update(base_url=strict.base_url)
        job = run_to_end(start(operator, model_agent, n_iterations=1).job)
    assert (job.status, brain.refused) == (Status.COMPLETED, [])
    steps = [one.steps for one in TrajectoryRecord.objects.filter(job_id=job.pk)]
    assert steps and all(
        one[0]["action"]["tool"] == "calculator" and one[0]["result"]["output"] == "4" for one in steps
    )
