"""A test task for a foreign agent: whether it answers, how fast, its text, and its credentials."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

from agentcore_site.audit.models import AuditEvent
from agentcore_site.lib.errors import Conflict, Forbidden, Invalid
from agentcore_site.tenancy.actors import Actor
from budgets.models import LedgerEntry
from budgets.services import price_set
from experiences.agents.services.agent_tests import agent_test
from experiences.agents.services.agents import agent_create, agent_update
from experiences.agents.services.endpoints import endpoint_create
from experiences.models import Agent, ModelEndpoint, TrajectoryRecord
from tests.support.agent_server import AgentServer, Ask
from tests.support.callers import Caller
from tests.support.llm_server import ModelServer
from tests.support.pages import html

pytestmark = pytest.mark.django_db(transaction=True)


def theirs(asked: dict[str, Any], ask: Ask) -> str:
    answer = ask({"role": "user", "content": asked["query"]})
    return str(answer["choices"][0]["message"]["content"])


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer(brain=lambda _: "Answer: 42", prices={"small": (1_000, 1_000)}) as running:
        yield running


@pytest.fixture
def endpoint(adam: Any, model: ModelServer) -> ModelEndpoint:
    home = adam.memberships.get().organization
    price_set(Actor(adam), model="small", organization=home, input_micros=1_000_000, output_micros=1_000_000)
    return endpoint_create(Actor(adam), name="local", base_url=model.base_url, model="small")


def foreign(adam: Any, endpoint: ModelEndpoint, url: str, **values: Any) -> Agent:
    return agent_create(
        Actor(adam), name="Theirs", runtime="http", environment="dataset", endpoint=endpoint, url=url, **values
    )


def test_agent_test_shows_answer_time_calls_and_cost(olivia: Any, adam: Any, endpoint: ModelEndpoint) -> None:
    with AgentServer(theirs) as server:
        agent = foreign(adam, endpoint, server.url, authorization="Bearer theirs-1")
        body = Caller(olivia).post(f"agents/{agent.pk}/test", {}).json()
    assert (body["ok"], body["answer"], body["calls"]) == (True, "Answer: 42", 1)
    assert body["latency_ms"] > 0 and body["cost_usd"] > 0
    assert server.headers[0]["authorization"] == "Bearer theirs-1"
    assert LedgerEntry.objects.filter(kind="settle", purpose="test", agent_id=agent.pk).count() == 1
    assert not TrajectoryRecord.objects.filter(agent_id=agent.pk).exists()
    assert AuditEvent.objects.filter(action="agent.tested").exists()


def passes_on(asked: dict[str, Any], ask: Ask) -> str:
    """As theirs, but with what it is sent before its own prompt."""
    own = {"role": "system", "content": f"{asked['system']}\n\nYou add numbers."}
    return str(ask(own, {"role": "user", "content": asked["query"]})["choices"][0]["message"]["content"])


def test_agent_test_shows_and_keeps_whether_the_context_reaches_its_model(
    olivia: Any, adam: Any, client: Client, endpoint: ModelEndpoint
) -> None:
    client.force_login(olivia)
    with AgentServer(theirs) as drops, AgentServer(passes_on) as passes:
        agent = foreign(adam, endpoint, drops.url)
        page = f"/agents/{agent.pk}/"
        assert "Not known yet" in html(client.get(page))
        assert Caller(olivia).post(f"agents/{agent.pk}/test", {}).json()["context_arrives"] is False
        assert Caller(olivia).get(f"agents/{agent.pk}").json()["context_arrives"] is False
        assert "does not reach the agent's model" in html(client.get(page))
        agent_update(Actor(adam), Agent.objects.get(pk=agent.pk), name="Still theirs")
        assert Agent.objects.get(pk=agent.pk).context_arrives is False
        agent_update(Actor(adam), Agent.objects.get(pk=agent.pk), url=passes.url)
        assert Agent.objects.get(pk=agent.pk).context_arrives is None  # another address is another agent
        assert agent_test(Actor(adam), Agent.objects.get(pk=agent.pk)).context_arrives is True
        assert "reaches the agent's model" in html(client.get(page))
        # An address that is only tried says nothing about the stored one.
        assert agent_test(Actor(adam), Agent.objects.get(pk=agent.pk), url=drops.url).context_arrives is False
        assert Agent.objects.get(pk=agent.pk).context_arrives is True


def test_the_gateway_puts_the_context_into_the_calls_of_an_agent_that_drops_the_context(
    olivia: Any, adam: Any, client: Client, endpoint: ModelEndpoint, model: ModelServer
) -> None:
    client.force_login(olivia)
    with AgentServer(theirs) as drops:
        agent = foreign(adam, endpoint, drops.url, system_prompt="Add with care.")
        tested = f"agents/{agent.pk}/test"
        assert Caller(olivia).post(tested, {}).json()["context_arrives"] is False
        # What is only tried in a form says nothing about what is stored.
        assert Caller(olivia).post(tested, {"inject_context": True}).json()["context_arrives"] is True
        form = {"agent": agent.pk, "url": drops.url, "inject_context": "on"}
        assert "adds the context to each" in html(client.post("/agents/test/", form))
        assert Agent.objects.get(pk=agent.pk).context_arrives is False
        changed = Caller(olivia).patch(f"agents/{agent.pk}", {"inject_context": True}).json()
        assert (changed["inject_context"], changed["context_arrives"]) == (True, None)
        assert Caller(olivia).post(tested, {}).json()["context_arrives"] is True
    assert "adds the context to each" in html(client.get(f"/agents/{agent.pk}/"))
    assert drops.asked[-1]["system"] == "" and drops.asked[0]["system"].startswith("Add with care.")
    assert "Add with care." in model.requests[-1].body["messages"][0]["content"]


def test_an_agent_that_calls_no_model_of_ours_has_no_call_to_put_the_context_into(
    olivia: Any, adam: Any, client: Client, endpoint: ModelEndpoint
) -> None:
    client.force_login(olivia)
    with AgentServer(lambda asked, ask: "Answer: 42") as alone:
        agent = foreign(adam, endpoint, alone.url, inject_context=True)
        assert Caller(olivia).post(f"agents/{agent.pk}/test", {}).json()["context_arrives"] is False
    assert "made no call to the model address" in html(client.get(f"/agents/{agent.pk}/"))


def test_an_agent_that_does_not_answer_leaves_open_whether_its_context_arrives(
    adam: Any, endpoint: ModelEndpoint
) -> None:
    with AgentServer(lambda asked, ask: (500, b"")) as server:
        agent = foreign(adam, endpoint, server.url)
        assert agent_test(Actor(adam), agent).context_arrives is None
        assert Agent.objects.get(pk=agent.pk).context_arrives is None


def test_agent_test_says_what_went_wrong(adam: Any, endpoint: ModelEndpoint) -> None:
    with AgentServer(lambda asked, ask: (403, b"who are you?")) as server:
        result = agent_test(Actor(adam), foreign(adam, endpoint, server.url))
    assert not result.ok and "it answered with HTTP 403" in result.message and "who are you" not in result.message
    gone = agent_test(Actor(adam), None, url="http://127.0.0.1:9/", endpoint=endpoint)
    assert not gone.ok and "can't be called" in gone.message
    with pytest.raises(Conflict, match="Say where"):
        agent_test(Actor(adam), None, endpoint=endpoint)


def test_only_an_admin_has_another_address_called(operator: Actor, adam: Any, endpoint: ModelEndpoint) -> None:
    with AgentServer(theirs) as server:
        agent = foreign(adam, endpoint, server.url)
        assert agent_test(operator, agent).ok
        with pytest.raises(Forbidden):
            agent_test(operator, agent, url="http://127.0.0.1:9/")
        with pytest.raises(Forbidden):
            agent_test(operator, None, url=server.url, endpoint=endpoint)
        with pytest.raises(Forbidden):
            agent_update(operator, agent, authorization="Bearer mine")


def test_credentials_go_to_no_other_host(adam: Any, endpoint: ModelEndpoint) -> None:
    with AgentServer(theirs) as server:
        agent = foreign(adam, endpoint, server.url, authorization="Bearer theirs-1")
        assert "theirs-1" not in agent.authorization
        with pytest.raises(Invalid, match="enter it again"):
            agent_test(Actor(adam), agent, url="http://127.0.0.1:9/")
        with pytest.raises(Invalid, match="enter it again"):
            agent_update(Actor(adam), agent, url="http://127.0.0.1:9/")
    assert not AuditEvent.objects.filter(after__icontains="theirs-1").exists()
    with pytest.raises(Invalid, match="control character"):
        agent_update(Actor(adam), Agent.objects.get(pk=agent.pk), authorization="Bearer a\nx: y")


def test_from_the_form(adam: Any, client: Client, endpoint: ModelEndpoint) -> None:
    client.force_login(adam)
    with AgentServer(theirs) as server:
        values = {"url": server.url, "authorization": "Bearer form", "endpoint": str(endpoint.pk)}
        page = html(client.post("/agents/test/", values))
    assert "Answer: 42" in page and "after 1 call of its model" in page
    assert server.headers[0]["authorization"] == "Bearer form"
    assert "Say where" in html(client.post("/agents/test/", {"endpoint": str(endpoint.pk)}))
