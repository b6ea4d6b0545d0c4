"""The fetch tool through an agent: where the site allows hosts, for agents that have it, and what it says otherwise."""

from __future__ import annotations

import json
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from agentcore_site.lib.errors import Invalid
from agentcore_site.tenancy.actors import Actor
from budgets.meter_port import FreeMeter
from experiences.agents.services.agents import agent_update
from experiences.agents.toolset_of import AgentTools, tool_names
from experiences.models import Agent
from experiences.rollouts.collect import RolloutLimits, RolloutPlan, run_rollout
from experiences.rollouts.environments.dataset import dataset_environment
from experiences.rollouts.runtimes.llm import LLMRuntime, Sampling
from experiences.rollouts.types import RolloutKey, Trajectory
from tests.experiences.rollouts.runtimes.test_llm import client_of, paid
from tests.experiences.rollouts.tools.test_fetch import Pages
from tests.support.llm_server import ModelServer
from tests.support.names import Names

pytestmark = pytest.mark.django_db(transaction=True)
ROWS = [{"query": "What does the page say?", "expected_outcome": {"contains": "opens at nine"}}]


def lived(agent: Agent, url: str) -> Trajectory:
    def brain(messages: list[dict[str, Any]]) -> Any:
        if messages[-1]["role"] == "tool":
            return f"Answer: {messages[-1]['content']}"
        call = {"name": "fetch", "arguments": json.dumps({"url": url})}
        return {
            "role": "assistant", "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": call}],
        }  # fmt: skip

    environment = dataset_environment(ROWS, {})
    tools = AgentTools(Agent.objects.get(pk=agent.pk))

    async def played() -> Trajectory:
        async with client_of(server, FreeMeter()) as client:
            runtime = LLMRuntime(client, Sampling("small"), connect=tools.toolset)
            plan = RolloutPlan(environment, runtime, paid, seed=1, limits=RolloutLimits())
            return await run_rollout(environment.rows[0], RolloutKey(0, 0, 0), plan)

    with ModelServer(brain=brain) as server:
        return async_to_sync(played)()


@pytest.fixture
def reader(operator: Actor, agent: Agent, settings: Any) -> Agent:
    settings.FETCH_HOSTS = ("pages.example",)
    return agent_update(operator, agent, tools=["fetch"])


def test_an_agent_reads_a_page_of_an_allowed_host(reader: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    Names(monkeypatch, {"pages.example": ["127.0.0.1"]})
    with Pages({"/": (200, {"content-type": "text/html"}, b"<p>It <b>opens</b> at nine.</p>")}) as pages:
        result = lived(reader, f"http://pages.example:{pages.port}/")
    step = result.steps[0]
    assert (step.action["tool"], step.result["success"]) == ("fetch", True)
    assert step.result["output"] == "It opens at nine." and result.success


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://127.0.0.1:1/", "the host '127.0.0.1' is not allowed; allowed: pages.example"),
        ("http://other.example/", "the host 'other.example' is not allowed"),
        ("file:///etc/passwd", "An address begins with http:// or https://"),
    ],
)
def test_a_refused_address_is_a_step_with_its_reason(reader: Agent, url: str, why: str) -> None:
    result = lived(reader, url)
    assert not result.steps[0].result["success"] and why in result.steps[0].result["error"]
    assert result.error == "" and not result.success


def test_a_name_that_leads_inside_is_refused(reader: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    Names(monkeypatch, {"pages.example": ["10.0.0.7"]})
    result = lived(reader, "http://pages.example/")
    assert "private network" in result.steps[0].result["error"]


def test_without_allowed_hosts_there_is_no_such_tool(operator: Actor, agent: Agent, settings: Any) -> None:
    settings.FETCH_HOSTS = ()
    assert "fetch" not in dict(tool_names())
    with pytest.raises(Invalid, match="no tool named 'fetch'"):
        agent_update(operator, agent, tools=["fetch"])
