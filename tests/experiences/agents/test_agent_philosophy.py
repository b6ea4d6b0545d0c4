"""The philosophy of agents that name none, at each door where agents are made."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from agentcore_site.lib.errors import Invalid
from agentcore_site.tenancy.actors import Actor
from experiences.agents.services.agent_philosophy import NO_TOOLS
from experiences.agents.services.agents import agent_create, agent_update
from experiences.models import Agent, ModelEndpoint, Playbook
from experiences.playbooks.services.playbooks import playbook_create
from tests.factories import ModelEndpointFactory
from tests.support.callers import Caller
from tests.support.pages import html

pytestmark = pytest.mark.django_db

LLM = {"runtime": "llm", "environment": "dataset"}


@pytest.fixture
def endpoint(acme: Any) -> ModelEndpoint:
    return ModelEndpointFactory(organization=acme)


@pytest.mark.parametrize(
    ("values", "philosophy"),
    [
        (LLM, "chat"),
        (LLM | {"tools": ["calculator"]}, "react"),
        (LLM | {"environment": "workbench"}, "react"),  # which brings tools
        (LLM | {"philosophy": "cot"}, "cot"),
        ({"environment": "reasoning_gym"}, "react"),
    ],
)
def test_tools_decide_at_rest_and_in_the_form(
    adam: Any, client: Client, endpoint: ModelEndpoint, values: dict[str, Any], philosophy: str
) -> None:
    given = values | {"name": "Clerk"}
    made = Caller(adam).post("agents", given | {"endpoint_id": str(endpoint.pk)})
    assert (made.status_code, made.json()["philosophy"]) == (201, philosophy)
    client.force_login(adam)
    form = {"runtime": "action", "endpoint": str(endpoint.pk)} | given | {"slug": "by-form"}
    assert client.post(reverse("experiences:agent_new"), form).status_code == 302
    agent = Agent.objects.get(slug="by-form")
    assert agent.philosophy == philosophy

    # An edit keeps it, and its form offers no default.
    page = html(client.get(reverse("experiences:agent_edit", args=[agent.pk])))
    assert "By its tools" not in page and f'value="{philosophy}" selected' in page
    assert "By its tools" in html(client.get(reverse("experiences:agent_new")))


def test_chat_with_tools_is_refused_at_every_door(adam: Any, client: Client, endpoint: ModelEndpoint) -> None:
    admin = Actor(adam)
    agent = agent_create(admin, name="Clerk", endpoint=endpoint, **LLM)
    with pytest.raises(Invalid, match="Chat offers the model no tools"):
        agent_update(admin, agent, tools=["calculator"])
    agent.refresh_from_db()
    assert Caller(adam).patch(f"agents/{agent.slug}", {"tools": ["calculator"]}).status_code == 400
    client.force_login(adam)
    form = LLM | {"name": "Other", "endpoint": str(endpoint.pk), "philosophy": "chat", "tools": ["calculator"]}
    assert NO_TOOLS in html(client.post(reverse("experiences:agent_new"), form))
    adam.is_staff = adam.is_superuser = True
    adam.save()
    where = reverse("admin:experiences_agent_change", args=[agent.pk])
    values = LLM | {
        "organization": agent.organization_id, "name": "Clerk", "slug": agent.slug, "philosophy": "chat",
        "environment_options": "{}", "max_tokens": 9, "tools": '["calculator"]', "leave_out_rate": 0.1,
        "endpoint": endpoint.pk,
    }  # fmt: skip
    assert NO_TOOLS in html(client.post(where, values))
    assert agent_update(admin, agent, tools=["calculator"], philosophy="react").philosophy == "react"


def test_a_playbook_follows_the_philosophy_of_its_agent(adam: Any, endpoint: ModelEndpoint) -> None:
    agent = agent_create(Actor(adam), name="Clerk", endpoint=endpoint, evolves=True, **LLM)
    playbook_create(Actor(adam), agent=agent, initial_sections=[])
    assert Playbook.objects.get(agent=agent).philosophy == "chat"
