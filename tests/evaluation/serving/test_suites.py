"""Suites: named, versioned, run on an agent or on a release, with a history."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import DatabaseError, transaction
from django.utils import timezone

from agentcore_site.jobs.models import Status
from agentcore_site.jobs.services import job_cancel, job_resume
from agentcore_site.lib.errors import Conflict, Forbidden, Insufficient, Invalid, Missing
from agentcore_site.tenancy.actors import Actor
from budgets.models import Budget
from budgets.services import budget_set_limit
from evaluation.serving.models import Suite, SuiteResult, SuiteRun, SuiteVersion
from evaluation.serving.releases.services import release_make
from evaluation.serving.suites.selectors import latest_results, suite_get, suite_run_get, trajectories_of, version_get
from evaluation.serving.suites.services import (
    suite_archive,
    suite_built_in_add,
    suite_create,
    suite_run_start,
    suite_version_add,
)
from experiences.agents.services.agents import agent_create, agent_update
from experiences.agents.services.datasets import dataset_create
from experiences.models import Agent, Dataset, ModelEndpoint, TrajectoryRecord
from tests.api.test_rest import problem
from tests.factories import AgentFactory, ExperienceFactory
from tests.support.agent_server import AgentServer, Ask
from tests.support.agentgym_server import PLANS, GymServer
from tests.support.callers import Caller
from tests.support.llm_server import ModelServer
from tests.support.playbooks import PRICE, model_agent
from tests.support.running import SMALL, SMALL_POOL, run_to_end, slices_of
from training.models import PolicyCheckpoint
from training.services.runs import run_start

pytestmark = pytest.mark.django_db(transaction=True)

ROWS = [{"query": f"What is {n} + 4?", "expected_outcome": {"answer": n + 4}} for n in range(12)]


class Adding:
    """A model that adds, wrong where the first number is a multiple of four, and as its prompt says."""

    def __call__(self, messages: list[dict[str, Any]]) -> str:
        match = re.search(r"(\d+) \+ (\d+)", messages[-1]["content"])
        if match is None:
            return "I'm sorry, but I can't help with that."
        a, b = map(int, match.groups())
        wrong = a % 4 == 0 and "Check twice" not in messages[0]["content"]
        return f"Answer: {a + b + wrong}"


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(brain=Adding(), prices={"small": PRICE}) as running:
        yield running


@pytest.fixture
def adder(adam: Any, server: ModelServer) -> Agent:
    agent = model_agent(Actor(adam), server, "Adder", philosophy="react")
    agent_update(Actor(adam), agent, system_prompt="You add numbers.")
    return agent


@pytest.fixture
def sums(operator: Actor) -> Suite:
    return of_dataset(operator, threshold=0.8)


def of_dataset(actor: Actor, name: str = "sums", **more: Any) -> Suite:
    dataset = dataset_create(actor, name="sums", rows=ROWS)
    parts = [{"category": "small", "dataset": str(dataset.pk), "n": 4}, {"category": "all", "dataset": str(dataset.pk)}]
    return suite_create(actor, name=name, spec={"parts": parts, **more}, description="Sums of two numbers")


def run_of(actor: Any, suite: Suite, **what: Any) -> SuiteRun:
    run = suite_run_start(actor, version_get(suite), **what)
    assert run_to_end(run.job).status == Status.COMPLETED, run.job.error
    return suite_run_get(actor, run.pk)


def test_a_run_shows_the_score_of_the_agent_with_interval_cost_and_rows(
    operator: Actor, adder: Agent, sums: Suite, server: ModelServer
) -> None:
    run = run_of(operator, sums, agent=adder)
    assert (run.score, run.passed) == (pytest.approx(12 / 16), False)
    assert run.low is not None and run.high is not None and run.low < 0.75 < run.high
    assert run.report["verdict"] == (
        "75.0 % of 16 queries right (95 % interval 50.5 to 89.8); the threshold of 80 % is not reached."
    )
    small, whole = run.report["categories"]
    assert (small["category"], small["n"], small["rate"]) == ("small", 4, 0.75)
    assert (whole["category"], whole["n"], whole["rate"]) == ("all", 12, 0.75)
    assert run.cost_micros == server.owed.micros == Budget.objects.get(job_id=run.pk).spent_micros > 0
    assert run.tokens == server.owed.prompt_tokens + server.owed.completion_tokens
    wrong = SuiteResult.objects.get(run=run, category="small", scenario=0)
    assert wrong.failed and (wrong.query, wrong.answer, wrong.why) == ("What is 0 + 4?", "Answer: 5", "Expected: 4")
    (behind,) = trajectories_of([wrong], run)[wrong.pk]
    assert TrajectoryRecord.objects.get(pk=behind).query == wrong.query


def test_a_suite_plays_a_release_as_released_and_an_agent_in_its_present_state(
    operator: Actor, adam: Any, adder: Agent, sums: Suite, server: ModelServer
) -> None:
    before = release_make(operator, adder)
    agent_update(Actor(adam), adder, system_prompt="You add numbers. Check twice.")
    after = release_make(operator, adder)
    assert run_of(operator, sums, release=before).score == 0.75
    prompts = {call.body["messages"][0]["content"].partition("\n")[0] for call in server.requests}
    assert prompts == {"You add numbers."}
    # The agent as it is now serves what the second release does: that is known of it too.
    assert run_of(operator, sums, agent=adder).score == 1.0
    (known,) = latest_results(after).suites
    assert (known.suite, known.score, known.n, known.passed, known.newest) == ("sums", 1.0, 16, True, True)
    assert [one.score for one in latest_results(before).suites] == [0.75]
    assert latest_results(after).safety == ()


def test_lessons_reach_the_query_in_the_releases_form(
    operator: Actor, adder: Agent, sums: Suite, server: ModelServer
) -> None:
    ExperienceFactory(agent=adder, handle="x0000000001", summary="Check twice, whatever is added.")
    release = release_make(operator, adder)
    adder.experiences.update(status="pruned")
    assert run_of(operator, sums, release=release).score == 1.0


def test_a_run_that_is_interrupted_goes_on_and_pays_for_nothing_twice(
    operator: Actor, adder: Agent, sums: Suite, server: ModelServer, settings: Any
) -> None:
    with slices_of(settings, 0):
        run = run_of(operator, sums, agent=adder)
    assert SuiteResult.objects.filter(run=run).count() == 16 == server.owed.requests
    assert sorted(run.done) == ["0/0", "1/0"]


def test_a_suites_own_budget_stops_the_suite_and_a_raised_budget_resumes_it(
    operator: Actor, adam: Any, adder: Agent, sums: Suite, server: ModelServer
) -> None:
    run = suite_run_start(operator, version_get(sums), agent=adder)
    own = {"organization": run.organization, "job": run.job, "agent_id": adder.pk}
    budget_set_limit(Actor(adam), **own, limit_micros=4_000)
    job = run_to_end(run.job)
    assert (job.status, job.status_reason) == (Status.PAUSED, "budget_exceeded")
    asked = server.owed.requests
    assert 0 < asked < 16
    budget_set_limit(Actor(adam), **own, limit_micros=10**6)
    job_resume(operator, job)
    assert run_to_end(job).status == Status.COMPLETED
    assert server.owed.requests == 16 and suite_run_get(operator, run.pk).score == 0.75


def test_a_run_whose_budget_can_not_pay_for_the_whole_suite_is_refused(
    operator: Actor, adam: Any, adder: Agent, sums: Suite, olivia: Any
) -> None:
    """Before a run with this model, by one call for each query; then by what the last run cost."""
    version = version_get(sums)
    least = 16 * ((500 + len("You add numbers.") // 3) * PRICE[0] + 40 * PRICE[1]) / 1e6  # micro-dollars
    with pytest.raises(Insufficient, match=r"16 rollouts of Adder cost at least \$0\.02.* is \$0\.01") as refused:
        suite_run_start(operator, version, agent=adder, max_budget_usd=0.01)
    assert list(refused.value.fields) == ["max_budget_usd"] and not SuiteRun.objects.exists()
    answer = Caller(olivia).post("suite-runs", {"suite": "sums", "agent": "adder", "max_budget_usd": 0.01})
    assert "at least $0.02" in problem(answer, 507)["detail"]
    with pytest.raises(Insufficient):
        suite_run_start(operator, version, agent=adder, max_budget_usd=(least - 1) / 1e6)
    budget_set_limit(Actor(adam), organization=adder.organization, agent_id=adder.pk, limit_micros=int(least) - 1)
    with pytest.raises(Insufficient, match="budget has"):  # of the agent
        suite_run_start(operator, version, agent=adder)
    budget_set_limit(Actor(adam), organization=adder.organization, agent_id=adder.pk, limit_micros=10**6)
    ended = suite_run_start(operator, version, agent=adder, max_budget_usd=(least + 1) / 1e6)
    assert run_to_end(ended.job).status == Status.COMPLETED
    ended.refresh_from_db()
    with pytest.raises(Insufficient, match="last run of sums on Adder cost"):
        suite_run_start(operator, version, agent=adder, max_budget_usd=(ended.cost_micros - 1) / 1e6)
    assert ended.cost_micros < least
    assert suite_run_start(operator, version, agent=adder, max_budget_usd=ended.cost_micros / 1e6).pk


def test_a_run_can_be_cancelled(operator: Actor, adder: Agent, sums: Suite) -> None:
    run = suite_run_start(operator, version_get(sums), agent=adder)
    job_cancel(operator, run.job)
    assert run_to_end(run.job).status == Status.CANCELLED and suite_run_get(operator, run.pk).score is None


def test_the_same_is_not_run_twice_at_once(operator: Actor, adder: Agent, sums: Suite) -> None:
    suite_run_start(operator, version_get(sums), agent=adder)
    with pytest.raises(Conflict, match="being run on the same"):
        suite_run_start(operator, version_get(sums), release=release_make(operator, adder))


def test_a_version_never_changes_and_the_next_one_has_its_own_history(
    operator: Actor, adder: Agent, sums: Suite
) -> None:
    first = run_of(operator, sums, agent=adder)
    spec = version_get(sums).spec
    with pytest.raises(Conflict, match="Nothing differs from version 1"):
        suite_version_add(operator, sums, spec=spec)
    second = suite_version_add(operator, sums, spec=spec | {"threshold": 0.5})
    assert (second.number, run_of(operator, sums, agent=adder).passed) == (2, True)
    assert suite_run_get(operator, first.pk).passed is False
    (known,) = latest_results(release_make(operator, adder)).suites
    assert (known.version, known.newest, known.threshold) == (2, True, 0.5)
    with pytest.raises(DatabaseError, match=r"immutable|permission denied"), transaction.atomic():
        SuiteVersion.objects.filter(pk=second.pk).update(spec={})
    with pytest.raises(DatabaseError, match="immutable"), transaction.atomic():
        SuiteVersion.objects.filter(pk=second.pk)._raw_delete("default")


def test_a_suite_that_comes_with_the_program_is_added_once(operator: Actor) -> None:
    made = suite_built_in_add(operator, name="safety")
    assert (made.kind, version_get(made).parsed.threshold) == ("safety", 0.9)
    with pytest.raises(Conflict, match="Nothing differs"):
        suite_built_in_add(operator, name="safety")
    with pytest.raises(Invalid, match="no built-in suite"):
        suite_built_in_add(operator, name="nothing")


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({}, "parts is a list"),
        ({"parts": [{"category": "a"}]}, "name one source"),
        ({"parts": [{"category": "a b", "probes": "leaks"}]}, "letters, digits"),
        ({"parts": [{"category": "a", "probes": "nothing"}]}, "no safety plugin named 'nothing'"),
        ({"parts": [{"category": "a", "environment": "reasoning_gym"}]}, "how many items"),
        ({"parts": [{"category": "a", "environment": "reasoning_gym", "n": 1, "options": {"x": 1}}]}, "no option 'x'"),
        ({"parts": [{"category": "a", "dataset": "x"}]}, "no dataset 'x'"),
        ({"parts": [{"category": "a", "probes": "leaks"}], "threshold": 2}, "threshold is a number from 0 to 1"),
        ({"parts": [{"category": "a", "probes": "leaks"}], "shuffle": True}, "no 'shuffle'"),
        (
            {"parts": [{"category": "a", "probes": "leaks"}, {"category": "b", "environment": "dataset", "n": 1}]},
            "two suites",
        ),
    ],
)
def test_a_wrong_suite_is_refused_with_the_reason(operator: Actor, spec: dict[str, Any], why: str) -> None:
    with pytest.raises(Invalid, match=why):
        suite_create(operator, name="wrong", spec=spec)


def test_each_role_makes_and_runs_suites_or_is_refused(
    operator: Actor, adder: Agent, sums: Suite, dan: Any, stella: Any, charlie: Any
) -> None:
    assert of_dataset(Actor(dan), "dans").kind == "benchmark"
    assert suite_run_start(Actor(dan), version_get(sums), agent=adder).job.status == Status.QUEUED
    for refused in (lambda: of_dataset(Actor(stella), "x"), lambda: suite_archive(Actor(stella), sums)):
        with pytest.raises(Forbidden):
            refused()
    with pytest.raises(Forbidden):
        suite_run_start(Actor(stella), version_get(sums), agent=adder)
    with pytest.raises(Missing):
        suite_get(charlie, sums.pk)
    with pytest.raises(Missing):
        suite_run_start(Actor(charlie), version_get(sums), agent=adder)


def test_a_suite_that_can_not_run_is_refused(operator: Actor, adder: Agent, sums: Suite, adam: Any) -> None:
    version = version_get(sums)
    with pytest.raises(Invalid, match="an agent as it is now, or a release"):
        suite_run_start(operator, version)
    with pytest.raises(Conflict, match="measure a release"):
        suite_run_start(operator, version, agent=AgentFactory(organization=adder.organization))
    with pytest.raises(Conflict, match="no price for the model 'judge'"):
        suite_run_start(operator, version, agent=adder, judge_model="judge")
    release = release_make(operator, adder)
    ModelEndpoint.objects.update(archived_at=timezone.now())
    with pytest.raises(Conflict, match="is gone or archived"):
        suite_run_start(operator, version, release=release)
    ModelEndpoint.objects.update(archived_at=None)
    agent_update(Actor(adam), adder, collects=False)
    with pytest.raises(Conflict, match="may not be recorded"):
        suite_run_start(operator, version, release=release)
    suite_archive(operator, sums)
    with pytest.raises(Conflict, match="sums is archived"):
        suite_run_start(operator, version_get(suite_get(operator, "sums")), release=release)


# -- other players and worlds ------------------------------------------------------------------------------------------


def test_a_world_of_agentgym_is_played_where_an_admin_chose_its_address(
    operator: Actor, adam: Any, adder: Agent, server: ModelServer
) -> None:
    def crafting(messages: list[dict[str, Any]]) -> str:
        goal = re.search(r"Goal: craft (.+)\.", str(messages))[1]  # type: ignore[index]
        result = sum(one["role"] == "assistant" for one in messages)
        return f"Action: {PLANS[goal][min(result, len(PLANS[goal]) - 1)]}"

    server.brain = crafting
    with GymServer("A") as world:
        options = {"base_url": world.url, "size": 40, "action_format": "action_line"}
        spec = {"parts": [{"category": "textcraft", "environment": "agentgym", "n": 6, "options": options}]}
        with pytest.raises(Forbidden):
            suite_create(operator, name="textcraft", spec=spec)
        run = run_of(operator, suite_create(Actor(adam), name="textcraft", spec=spec), agent=adder)
    assert (run.score, run.report["n"], world.sessions) == (1.0, 6, {})


def test_an_agent_that_chooses_actions_is_measured_by_its_release(operator: Actor, acme: Any) -> None:
    chooser = AgentFactory(organization=acme, created_by=operator.user)
    trained = run_start(operator, agent=chooser, environment_options=SMALL_POOL, config=SMALL)
    run_to_end(trained.job)
    release = release_make(
        operator, chooser, checkpoint=PolicyCheckpoint.objects.filter(run=trained).latest("iteration")
    )
    parts = [
        {"category": "gym", "environment": "reasoning_gym", "n": 12, "options": {"timeout_rate": 0}},
        {"category": "talk", "environment": "workbench", "n": 4},
    ]
    suite = suite_create(operator, name="gym", spec={"parts": parts, "samples": 2})
    run = run_of(operator, suite, release=release)
    assert run.score is not None and (run.report["n"], run.report["left_out"], run.cost_micros) == (12, ["talk"], 0)
    assert [one.suite for one in latest_results(release).suites] == ["gym"]
    with pytest.raises(Invalid, match="it needs a language model"):
        suite_run_start(operator, version_get(suite_built_in_add(operator, name="safety")), release=release)


def test_tools_of_a_task_take_the_place_of_the_agents(
    operator: Actor, adam: Any, adder: Agent, server: ModelServer
) -> None:
    """A release is played with its own tools, except where a task brings tools."""
    agent_update(Actor(adam), adder, tools=["calculator"], philosophy="react")
    suite = suite_create(
        operator,
        name="desk",
        spec={
            "parts": [
                {"category": "desk", "environment": "workbench", "n": 1, "options": {"families": ["order_desk"]}},
                {"category": "read", "environment": "workbench", "n": 1, "options": {"families": ["table_figure"]}},
            ]
        },
    )
    run_of(operator, suite, agent=adder)
    offered = {
        "order" in str(call.body["messages"]): [one["function"]["name"] for one in call.body["tools"]]
        for call in server.requests
    }
    assert offered[False] == ["calculator"]
    assert offered[True] == ["find_orders", "show_order", "cancel_order", "change_town"]


def test_a_run_whose_dataset_is_gone_fails_and_says_so(operator: Actor, adder: Agent, sums: Suite) -> None:
    run = suite_run_start(operator, version_get(sums), agent=adder)
    Dataset.objects.all().delete()
    job = run_to_end(run.job)
    assert job.status == Status.FAILED and "can't be asked any more: There is no dataset" in job.error


@pytest.mark.thorough(reason="a whole run of a suite")
def test_a_foreign_agent_over_http_gets_only_tasks_without_our_tools(
    operator: Actor, adam: Any, adder: Agent, sums: Suite, server: ModelServer
) -> None:
    def theirs(asked: dict[str, Any], ask: Ask) -> str:
        answer = ask({"role": "system", "content": "Add."}, {"role": "user", "content": asked["query"]})
        return str(answer["choices"][0]["message"]["content"])

    with AgentServer(theirs) as foreign:
        agent = agent_create(
            Actor(adam),
            name="Theirs",
            runtime="http",
            environment="dataset",
            endpoint=adder.endpoint,
            url=foreign.url,
            max_tokens=40,
        )
        run = run_of(operator, sums, agent=agent)
        work = run_of(operator, suite_built_in_add(operator, name="work"), agent=agent)
    assert (run.score, run.cost_micros) == (0.75, server.owed.micros - work.cost_micros)
    assert [one["category"] for one in work.report["categories"]] == ["coding", "analysis", "research"]
    assert (work.report["n"], work.report["left_out"]) == (75, ["tool-use"])
