"""The guide for newcomers: each step is read from the data, from an empty organisation to a release."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from django.test import Client

from agentcore_site.audit.services import record
from agentcore_site.jobs.models import Status
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from budgets.services import price_set
from evaluation.serving.models import Release
from experiences.agents.services.agents import agent_create
from experiences.agents.services.datasets import dataset_create
from experiences.models import Agent, Dataset
from tests import factories
from tests.console.conftest import SignIn
from tests.support.pages import html
from tests.support.rows import checkpoint_of_run, lived_run
from training.data.sample import sample_rows

pytestmark = pytest.mark.django_db
TITLES = ["Connect a model", "Try it", "Create an agent", "Bring data", "Launch", "Read the result", "Release"]


def steps_of(client: Client, address: str = "/") -> dict[str, bool]:
    """By title, whether a step is done, as the page shows it."""
    return steps_in(html(client.get(address)))


def steps_in(shown: str) -> dict[str, bool]:
    matches = re.findall(r"<span class=\"hidden\">(Done|To do):</span>.*?<h3>([^<]+)</h3>", shown, re.DOTALL)
    return {title: state == "Done" for state, title in matches}


def done(n: int) -> dict[str, bool]:
    """The first ``n`` steps are done."""
    return {title: place < n for place, title in enumerate(TITLES)}


def test_an_empty_organisation_sees_the_way_in_the_place_of_cards_that_say_nothing(console: Client) -> None:
    assert steps_of(console) == done(0)
    shown = html(console.get("/"))
    for nothing in ("Action required", "No job is running", "Nothing is proven yet"):
        assert nothing not in shown
    assert "Admins may do this." in shown, "an operator adds no endpoint"


def test_the_demo_agent_goes_the_whole_way(console: Client, operator: Actor, olivia: Any, acme: Organization) -> None:
    assert console.post("/agents/demo/")["Location"] == "/"
    made = Agent.objects.get(organization=acme)
    assert (made.slug, made.created_by) == ("tool-router", olivia)
    assert steps_of(console) == done(4)
    assert f'href="/launch/?agent={made.pk}"' in html(console.get("/"))
    # A second click makes no second one.
    console.post("/agents/demo/")
    assert Agent.objects.filter(organization=acme).count() == 1
    run = lived_run(operator, made)
    run.job.status = Status.RUNNING
    run.job.save()
    assert steps_of(console) == done(5)
    shown = html(console.get("/"))
    assert "Action required" in shown and f'href="/jobs/{run.pk}/"' in shown
    checkpoint = checkpoint_of_run(run)
    run.job.status = Status.COMPLETED
    run.job.save()
    assert steps_of(console) == done(5) and "is still to come" in html(console.get("/"))
    run.best_checkpoint, run.verdict = checkpoint, {"verdict": "No gain was proven.", "low": -0.02, "high": 0.04}
    run.save()
    assert steps_of(console) == done(6)
    shown = html(console.get("/"))
    assert "No gain was proven." in shown and "nothing to release" in shown and "Promote it" not in shown
    run.verdict = {"verdict": "Better by 20 points.", "low": 0.1, "high": 0.3}
    run.save()
    assert f'href="/checkpoints/{checkpoint.pk}/promote/"' in html(console.get("/"))
    Release.objects.create(organization=acme, agent=made, number=1, source="agent", bundle={})
    assert "Get started" not in html(console.get("/"))
    assert steps_of(console, "/get-started/") == done(7)


def test_an_agent_of_a_language_model_goes_step_by_step(
    console: Client, operator: Actor, adam: Any, acme: Organization
) -> None:
    endpoint = factories.ModelEndpointFactory(organization=acme, model="reader-1")
    shown = html(console.get("/"))
    assert "reader-1" in shown and not steps_of(console)["Connect a model"]
    price_set(Actor(adam), model="reader-1", organization=acme, free=True)
    assert steps_of(console) == done(1)
    assert f'href="/playground/?endpoint={endpoint.pk}"' in html(console.get("/"))
    record(Actor(adam), "endpoint.tested", endpoint, organization=acme, after={"model": "reader-1", "ok": False})
    assert steps_of(console) == done(1), "a test that failed is no answer"
    record(Actor(adam), "endpoint.tested", endpoint, organization=acme, after={"model": "reader-1", "ok": True})
    assert steps_of(console) == done(2)
    query = f"environment=dataset&amp;runtime=llm&amp;endpoint={endpoint.pk}"
    assert f'href="/agents/new/?{query}"' in html(console.get("/"))
    form = html(console.get(f"/agents/new/?{query.replace('&amp;', '&')}"))
    assert f'<option value="{endpoint.pk}" selected>' in form and '<option value="dataset" selected>' in form
    made = agent_create(operator, name="Reader", environment="dataset", runtime="llm", endpoint=endpoint)
    assert steps_of(console) == done(3)
    rows = [{"query": f"what is {n}?", "expected_outcome": {"answer": str(n)}} for n in range(100)]
    dataset = dataset_create(operator, name="Numbers", rows=rows)
    assert steps_of(console) == done(4)
    shown = html(console.get("/"))
    assert "100 rows, of which 20 are held out" in shown
    assert f'href="/launch/?agent={made.pk}&amp;dataset={dataset.pk}"' in shown


def test_the_sample_data_are_a_dataset_in_one_click(console: Client, operator: Actor, acme: Organization) -> None:
    factories.AgentFactory(organization=acme, environment="dataset")
    response = console.post("/datasets/sample/")
    made = Dataset.objects.get(organization=acme)
    assert response["Location"] == f"/datasets/{made.pk}/" and made.size == len(sample_rows()) == 160
    assert steps_of(console)["Bring data"]
    assert console.post("/datasets/sample/")["Location"] == response["Location"], "the same rows are one dataset"
    assert Dataset.objects.filter(organization=acme).count() == 1
    teams = Counter(row["expected_outcome"]["answer"] for row in sample_rows())
    assert len(teams) == 8 and max(teams.values()) <= 0.3 * made.size, "no team is right by being always answered"
    assert all(f" {team}" in row["query"] for row in sample_rows() for team in teams), "each query names all teams"


def test_the_guide_can_be_hidden_and_shown_again(console: Client) -> None:
    response = console.post("/get-started/hide/", {"hidden": "yes"}, follow=True)
    assert 'id="first-steps"' not in html(response) and "The guide is hidden" in html(response)
    assert steps_of(console, "/get-started/") == done(0)
    assert steps_in(html(console.post("/get-started/hide/", follow=True))) == done(0)
    assert "Get started" in html(console.get("/search/palette/?q=get started"))


def test_after_some_jobs_an_organisation_needs_no_guide(console: Client, operator: Actor, agent: Agent) -> None:
    for n in range(6):
        assert 'id="first-steps"' in html(console.get("/")), f"{n} jobs"
        lived_run(operator, agent, iterations=1, queries=1)
    assert 'id="first-steps"' not in html(console.get("/"))
    assert 'id="first-steps"' not in html(console.get("/"))


def test_a_viewer_is_shown_no_action(stella: Any, charlie: Any, signed_in: SignIn, agent: Agent) -> None:
    assert "Get started" not in html(signed_in(stella).get("/"))
    assert signed_in(stella).get("/get-started/").status_code == 403
    # Another organisation's agent is no step of one's own.
    assert steps_of(signed_in(charlie)) == done(0)
    assert signed_in(stella).post("/agents/demo/").status_code == 403
    assert signed_in(stella).post("/datasets/sample/").status_code == 403
