"""Settings that an agent would not use are refused, and what a job's plan was made with stays while the job does."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from agentcore_site.jobs.models import Job, Status
from agentcore_site.lib.errors import Conflict, Invalid
from agentcore_site.tenancy.actors import Actor
from budgets.services import price_set
from experiences.agents.services.agents import agent_create, agent_update
from experiences.agents.services.endpoints import endpoint_create, endpoint_update
from experiences.models import Agent, ModelEndpoint
from tests.support.callers import Caller
from tests.support.pages import html
from training.services.runs import run_start

pytestmark = pytest.mark.django_db

ROWS = [{"query": f"What is {i} + {i}?", "expected_outcome": {"answer": str(2 * i)}} for i in range(30)]


@pytest.fixture
def boss(adam: Any) -> Actor:
    return Actor(adam)


@pytest.fixture
def endpoint(boss: Actor, acme: Any) -> ModelEndpoint:
    price_set(boss, model="small", organization=acme, input_micros=1_000, output_micros=1_000)
    return endpoint_create(boss, name="local", base_url="http://127.0.0.1:9/v1", model="small")


@pytest.fixture
def reader(boss: Actor, endpoint: ModelEndpoint) -> Agent:
    return agent_create(boss, name="Reader", runtime="llm", environment="dataset", endpoint=endpoint)


def test_an_address_and_injection_are_refused_for_agents_that_are_not_over_http(boss: Actor, reader: Agent) -> None:
    for given in ({"url": "http://127.0.0.1:9/"}, {"inject_context": True}):
        with pytest.raises(Invalid) as refused:
            agent_update(boss, reader, **given)
        assert list(refused.value.fields) == list(given)
        with pytest.raises(Invalid):
            agent_create(boss, name="New", **given)
    theirs: dict[str, Any] = {"runtime": "http", "url": "http://127.0.0.1:9/", "inject_context": True}
    agent_update(boss, reader, **theirs)
    with pytest.raises(Invalid) as refused:
        agent_update(boss, reader, runtime="llm")
    assert set(refused.value.fields) == {"url", "inject_context"}
    agent_update(boss, reader, runtime="llm", url="", inject_context=False)


def test_an_agent_that_was_stored_with_an_ignored_address_can_still_be_saved(
    boss: Actor, reader: Agent, adam: Any
) -> None:
    Agent.objects.filter(pk=reader.pk).update(url="http://127.0.0.1:9/", inject_context=True)
    kept = {"url": "http://127.0.0.1:9/", "inject_context": True}
    assert agent_update(boss, reader, name="Renamed", **kept).name == "Renamed"
    answer = Caller(adam).patch(f"agents/{reader.slug}", {"url": "http://127.0.0.1:9/other"})
    assert answer.status_code == 400 and "Only an agent over HTTP has an address" in html(answer)


def test_the_admin_refuses_the_same(client: Client, boss: Actor, reader: Agent, endpoint: ModelEndpoint) -> None:
    from django.contrib.auth import get_user_model

    client.force_login(get_user_model().objects.create_superuser("boss"))
    values = {
        "organization": reader.organization_id, "name": "Renamed", "slug": reader.slug, "description": "",
        "philosophy": reader.philosophy, "runtime": "llm", "environment": "dataset", "environment_options": "{}",
        "max_tokens": 1024, "tools": "[]", "collects": "on", "leave_out_rate": 0.1, "endpoint": endpoint.pk,
    }  # fmt: skip
    where = reverse("admin:experiences_agent_change", args=[reader.pk])
    assert "Only for an agent over HTTP" in html(client.post(where, values | {"inject_context": "on"}))
    run = run_start(boss, agent=reader, rows=ROWS, config={"context": {"accept_weak_gate": True}})
    assert run.job.title in html(client.post(where, values | {"model": "large"}))
    assert client.post(where, values).status_code == 302


def test_the_prices_of_a_plan_stay_until_the_job_has_ended(
    boss: Actor, reader: Agent, endpoint: ModelEndpoint, acme: Any
) -> None:
    price_set(boss, model="large", organization=acme, input_micros=9_000, output_micros=9_000)
    other = endpoint_create(boss, name="other", base_url="http://127.0.0.1:9/v2", model="large")
    run = run_start(boss, agent=reader, rows=ROWS, config={"context": {"accept_weak_gate": True}})
    changes: list[dict[str, Any]] = [
        {"endpoint": other}, {"model": "large"}, {"reflector": other}, {"reflector_model": "large"},
        {"philosophy": "cot"}, {"max_tokens": 64}, {"runtime": "action"},
    ]  # fmt: skip
    for change in changes:
        with pytest.raises(Conflict, match="Train Reader") as refused:
            agent_update(boss, Agent.objects.get(pk=reader.pk), **change)
        assert list(refused.value.fields) == list(change)
    # Nor by the way of the endpoint, whose address may still be put right.
    with pytest.raises(Conflict, match="Train Reader"):
        endpoint_update(boss, endpoint, model="large")
    endpoint_update(boss, ModelEndpoint.objects.get(pk=endpoint.pk), base_url="http://127.0.0.1:9/v3")
    endpoint_update(boss, other, model="small")
    agent_update(boss, Agent.objects.get(pk=reader.pk), name="Renamed", endpoint=endpoint, model="")
    Job.objects.filter(pk=run.job_id).update(status=Status.CANCELLED)
    for change in changes:
        agent_update(boss, Agent.objects.get(pk=reader.pk), **change)
