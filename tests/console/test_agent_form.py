"""The form of an agent begins with what each agent needs; the rest is folded until it is used or wrong."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from experiences.agents.forms import PARTS, AgentForm
from experiences.agents.services.agents import agent_update
from experiences.models import Agent
from tests import factories
from tests.support.pages import html

pytestmark = pytest.mark.django_db


def open_parts(shown: str) -> set[str]:
    return set(re.findall(r"<details class=\"fold[^\"]*\" open>\s*<summary>([^<]+)</summary>", shown))


def test_a_new_agents_form_shows_no_part_that_most_agents_leave_as_it_is(console: Client) -> None:
    assert open_parts(html(console.get("/agents/new/"))) == set()
    filled = html(console.get("/agents/new/?environment=dataset&runtime=llm"))
    assert open_parts(filled) == set() and '<option value="dataset" selected>' in filled


def test_parts_that_are_wrong_or_used_are_open(console: Client, operator: Actor, acme: Organization) -> None:
    wrong = {"name": "Reader", "runtime": "llm", "environment": "dataset", "ace_min_confidence": "high"}
    response = console.post("/agents/new/", wrong | {"leave_out_rate": "0.1", "max_tokens": "1024"})
    assert response.status_code == 400 and open_parts(html(response)) == {"Playbook evolution"}
    endpoint = factories.ModelEndpointFactory(organization=acme)
    agent = factories.AgentFactory(organization=acme, runtime="llm", environment="dataset", endpoint=endpoint)
    before = open_parts(html(console.get(f"/agents/{agent.pk}/edit/")))
    assert not before & {"Tools", "Options of the environment", "Reward and reflection"}
    agent_update(operator, agent, tools=["calculator"], objective="Short.")
    after = open_parts(html(console.get(f"/agents/{agent.pk}/edit/")))
    assert after - before == {"Tools", "Reward and reflection"}


def test_each_folded_field_is_in_one_part_and_on_the_page(console: Client, operator: Actor) -> None:
    form, shown = AgentForm(actor=operator), html(console.get("/agents/new/"))
    named: list[str] = [name for names in PARTS.values() for name in names]
    assert len(named) == len(set(named)) and set(named) <= form.fields.keys()
    visible: dict[str, Any] = {name: form[name].id_for_label or form[name].auto_id for name in form.fields}
    # There is no tool server, so that the page has no box for its tools.
    missing = [
        name for name, label in visible.items() if label not in shown and name not in ("tool_servers", "granted_tools")
    ]
    assert missing == [] and Agent.objects.count() == 0
