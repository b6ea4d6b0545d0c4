"""Suites in the console and by REST."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from agentcore_site.jobs.models import Job
from agentcore_site.tenancy.actors import Actor
from evaluation.serving.models import Release, Suite, SuiteRun
from evaluation.serving.releases.services import release_make
from evaluation.serving.suites.services import suite_built_in_add, suite_version_add
from experiences.models import Agent
from tests.api.test_rest import problem
from tests.support.callers import Caller
from tests.support.llm_server import ModelServer
from tests.support.pages import html
from tests.support.playbooks import model_agent
from tests.support.queries import queries_of
from tests.support.suites import PROBES, suite_run_stored

pytestmark = pytest.mark.django_db


@pytest.fixture
def release(operator: Actor, agent: Agent) -> Release:
    return release_make(operator, agent)


@pytest.fixture
def run(operator: Actor, release: Release) -> SuiteRun:
    return suite_run_stored(operator, release)


def signed_in(person: Any) -> Client:
    client = Client(raise_request_exception=True)
    client.force_login(person)
    return client


def test_the_empty_list_teaches_and_adds_a_suite_of_the_program(console: Client) -> None:
    shown = html(console.get("/suites/"))
    assert "No suite yet" in shown and "Add a built-in suite" in shown
    answer = console.post("/suites/add/", {"built_in": "safety"}, follow=True)
    shown = html(answer)
    assert "Queries of version 1" in shown and "probes: jailbreak" in shown and "90 % in each category" in shown
    assert "No run yet" in shown and "Run safety" in shown
    listed = html(console.get("/suites/"))
    assert "safety</a>" in listed and '<option value="safety">' not in listed


def test_a_suite_is_written_as_json_and_a_mistake_stays_in_the_form(console: Client) -> None:
    wrong = console.post("/suites/new/", {"name": "own", "spec": '{"parts": [{"category": "a"}]}'})
    assert wrong.status_code == 400 and "name one source" in html(wrong) and 'value="own"' in html(wrong)
    made = console.post("/suites/new/", {"name": "own", "spec": '{"parts": [{"category": "a", "probes": "bias"}]}'})
    suite = Suite.objects.get(name="own")
    assert made["Location"] == f"/suites/{suite.pk}/"
    assert "Nothing differs" in html(
        console.post(f"/suites/{suite.pk}/version/", {"spec": '{"parts": [{"category": "a", "probes": "bias"}]}'})
    )
    more = '{"parts": [{"category": "a", "probes": "bias"}], "samples": 2}'
    assert console.post(f"/suites/{suite.pk}/version/", {"spec": more})["Location"] == f"/suites/{suite.pk}/"
    assert [one.number for one in suite.versions.all()] == [2, 1]


def test_a_suite_shows_its_history_as_chart_and_table(console: Client, operator: Actor, run: SuiteRun) -> None:
    suite = run.version.suite
    suite_version_add(operator, suite, spec=PROBES | {"threshold": 0.5})
    later = suite_run_stored(operator, run.release, safe=10)  # type: ignore[arg-type]
    shown = html(console.get(f"/suites/{suite.pk}/"))
    assert shown.count('class="history-point') == 2 and 'class="history-threshold"' in shown
    assert "Support clerk release 1, version 1: 90.0 % (" in shown and "version 2: 100.0 %" in shown
    assert f"/suite-runs/{later.pk}/" in shown and "20 probes safe" in shown
    assert "Support clerk release 1" in html(console.get(f"/suites/?agent={run.agent_id}"))
    assert "No run yet" not in html(console.get(f"/suites/{suite.pk}/?q=nothing"))
    assert html(console.get(f"/suites/{suite.pk}/?agent={run.agent_id}")).count('class="history-point') == 2
    assert "90 % in each" in html(console.get(f"/suites/{suite.pk}/?version=1"))


def test_a_run_shows_findings_by_category_and_what_was_answered(console: Client, run: SuiteRun) -> None:
    shown = html(console.get(f"/suite-runs/{run.pk}/"))
    assert "90.0 % of 20 probes safe" in shown and "findings in leaks, bias" in shown
    assert shown.count('class="share-mark good"') == 2 and "2 queries" not in shown
    failed = html(console.get(f"/suite-runs/{run.pk}/?outcome=failed&category=leaks"))
    assert "It gave away an address." in failed and "Nothing came out." not in failed and "1 query" in failed
    for name in ("unjudged", "untold"):  # the former name
        assert "No query matches" in html(console.get(f"/suite-runs/{run.pk}/?outcome={name}"))
    assert console.get(f"/suite-runs/{run.pk}/json/").json()["report"]["n"] == 20
    Job.objects.filter(pk=run.pk).update(status="running", progress=0.4)
    SuiteRun.objects.filter(pk=run.pk).update(report={})
    part = html(console.get(f"/suite-runs/{run.pk}/?part=progress"))
    assert "The queries are being answered" in part and "<html" not in part


def test_a_run_is_asked_for_on_the_page_of_its_suite(console: Client, run: SuiteRun, agent: Agent) -> None:
    suite = run.version.suite
    assert "Support clerk" in html(console.get(f"/suites/{suite.pk}/"))
    refused = console.post(f"/suites/{suite.pk}/run/", {"subject": "agent:nothing", "max_budget_usd": 1}, follow=True)
    assert "Select a valid choice" in html(refused)
    refused = console.post(
        f"/suites/{suite.pk}/run/", {"subject": f"agent:{agent.pk}", "max_budget_usd": 1}, follow=True
    )
    assert "no price for the model" in html(refused)


def test_the_form_of_a_run_refuses_a_budget_that_can_not_pay_for_the_suite(
    console: Client, operator: Actor, adam: Any
) -> None:
    with ModelServer() as server:
        agent = model_agent(Actor(adam), server, philosophy="react")
    suite = suite_built_in_add(operator, name="safety")
    values = {"subject": f"agent:{agent.pk}", "max_budget_usd": 0.1}
    shown = html(console.post(f"/suites/{suite.pk}/run/", values, follow=True))
    assert "118 rollouts of Clerk cost at least $0.16" in shown and "the budget of this run is $0.10" in shown
    assert not SuiteRun.objects.exists()


def test_a_release_shows_the_results_of_its_suites(console: Client, run: SuiteRun) -> None:
    shown = html(console.get(f"/releases/{run.release_id}/"))
    assert f"/suite-runs/{run.pk}/" in shown and "90.0 %" in shown and "version 1</span>" in shown.replace("\n", "")


def test_a_viewer_sees_no_form(run: SuiteRun, stella: Any, charlie: Any) -> None:
    for path in ("/suites/", f"/suites/{run.version.suite_id}/", f"/suite-runs/{run.pk}/"):
        shown = html(signed_in(stella).get(path))
        assert "Add it</button>" not in shown and "Next version" not in shown and ">Run safe" not in shown
    assert signed_in(charlie).get(f"/suites/{run.version.suite_id}/").status_code == 404
    assert signed_in(charlie).get(f"/suite-runs/{run.pk}/").status_code == 404


def test_a_list_of_many_suites_costs_as_many_queries_as_one(console: Client, operator: Actor, run: SuiteRun) -> None:
    alone = queries_of(console, "/suites/")
    for name in ("a", "b", "c"):
        suite_run_stored(operator, run.release, name=name)  # type: ignore[arg-type]
    assert queries_of(console, "/suites/") == alone


# -- REST --------------------------------------------------------------------------------------------------------------


def test_suites_by_rest(api: Caller) -> None:
    made = api.post("suites", {"built_in": "safety"})
    assert made.status_code == 201 and (made.json()["name"], made.json()["version"]) == ("safety", 1)
    problem(api.post("suites", {"built_in": "safety"}), 409)
    assert "Give built_in alone" in problem(api.post("suites", {"name": "x"}), 400)["detail"]
    own = api.post("suites", {"name": "own", "spec": PROBES}).json()
    more = api.post(f"suites/{own['id']}/versions", {"spec": PROBES | {"samples": 3}})
    assert (more.status_code, more.json()["number"]) == (201, 2)
    detail = api.get(f"suites/{own['id']}").json()
    assert [one["number"] for one in detail["versions"]] == [2, 1]
    assert [one["name"] for one in api.get("suites?kind=safety&search=ow").json()["results"]] == ["own"]
    assert api.delete(f"suites/{own['id']}").status_code == 204
    assert [one["name"] for one in api.get("suites").json()["results"]] == ["safety"]


def test_runs_by_rest(api: Caller, run: SuiteRun, agent: Agent) -> None:
    (listed,) = api.get(f"suite-runs?suite=safe&agent={agent.slug}").json()["results"]
    assert (listed["id"], listed["score"], listed["status"]) == (str(run.pk), 0.9, "completed")
    detail = api.get(f"suite-runs/{run.pk}").json()
    assert [one["category"] for one in detail["report"]["categories"]] == ["leaks", "bias"]
    failed = api.get(f"suite-runs/{run.pk}/results?outcome=failed").json()["results"]
    assert [(one["category"], one["successes"], one["why"]) for one in failed] == [
        ("leaks", [False], "It gave away an address."), ("bias", [False], "It gave away an address."),
    ]  # fmt: skip
    known = api.get(f"releases/{run.release_id}/results").json()
    assert [(one["suite"], one["score"]) for one in known["suites"]] == [("safe", 0.9)]
    assert [(one["category"], one["findings"]) for one in known["safety"]] == [("leaks", 1.0), ("bias", 1.0)]
    assert "no price" in problem(api.post("suite-runs", {"suite": "safe", "agent": agent.slug}), 409)["detail"]
    problem(api.post(f"suite-runs/{run.pk}/cancel", {}), 409)
