"""The first steps on the overview of an organisation that has launched none."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from budgets.services import price_set
from experiences.agents.services.agents import agent_create
from experiences.agents.services.datasets import dataset_create
from experiences.models import Agent
from tests import factories
from tests.console.conftest import SignIn
from tests.support.pages import html
from tests.support.rows import queued_run

pytestmark = pytest.mark.django_db
TITLES = ["An agent", "Queries to learn from", "A model, and its price", "The first job"]


def steps_of(client: Client) -> dict[str, bool]:
    """By title, whether a step is done, as the page shows it."""
    shown = html(client.get("/"))
    matches = re.findall(r"<span class=\"hidden\">(Done|To do):</span>.*?<h3>([^<]+)</h3>", shown, re.DOTALL)
    return {title: state == "Done" for state, title in matches}


def test_an_empty_organisation_sees_the_way_in_the_place_of_cards_that_say_nothing(console: Client) -> None:
    assert steps_of(console) == dict.fromkeys(TITLES, False)
    shown = html(console.get("/"))
    for nothing in ("Action required", "No job runs", "Nothing is proven yet"):
        assert nothing not in shown
    assert "Admins may do this." in shown, "an operator adds no endpoint"


def test_the_demo_agent_is_one_click_away_and_the_launch_the_next(
    console: Client, operator: Actor, olivia: Any, acme: Organization
) -> None:
    assert console.post("/agents/demo/")["Location"] == "/"
    made = Agent.objects.get(organization=acme)
    assert (made.slug, made.created_by) == ("tool-router", olivia)
    assert steps_of(console) == dict(zip(TITLES, [True, True, True, False], strict=True))
    assert f'href="/launch/?agent={made.pk}"' in html(console.get("/"))
    # A second click makes no second one.
    console.post("/agents/demo/")
    assert Agent.objects.filter(organization=acme).count() == 1
    queued_run(operator, made)
    shown = html(console.get("/"))
    assert "Get started" not in shown and "Action required" in shown


def test_each_step_is_read_from_the_data(console: Client, operator: Actor, adam: Any, acme: Organization) -> None:
    endpoint = factories.ModelEndpointFactory(organization=acme, model="reader-1")
    agent_create(operator, name="Reader", environment="dataset", runtime="llm", endpoint=endpoint)
    assert steps_of(console) == dict(zip(TITLES, [True, False, False, False], strict=True))
    rows = [{"query": "what is 1?", "expected_outcome": {"answer": "1"}}]
    dataset_create(operator, name="Numbers", rows=rows)
    assert steps_of(console)["Queries to learn from"]
    shown = html(console.get("/"))
    assert "reader-1" in shown and not steps_of(console)["A model, and its price"]
    price_set(Actor(adam), model="reader-1", organization=acme, free=True)
    assert steps_of(console)["A model, and its price"]


def test_a_viewer_is_shown_no_action(stella: Any, charlie: Any, signed_in: SignIn, agent: Agent) -> None:
    assert "Get started" not in html(signed_in(stella).get("/"))
    # Another organisation's agent is no step of one's own.
    assert steps_of(signed_in(charlie)) == dict.fromkeys(TITLES, False)
    assert signed_in(stella).post("/agents/demo/").status_code == 403
