"""Tools of MCP servers are granted to each agent by name; what a server needs to know is sealed."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.test import Client

from agentcore_site.audit.models import AuditEvent
from agentcore_site.lib.errors import Forbidden, Invalid
from agentcore_site.tenancy.actors import Actor
from experiences.agents.services.agents import agent_create, agent_update
from experiences.agents.services.tool_servers import (
    tool_server_archive,
    tool_server_create,
    tool_server_offer,
    tool_server_update,
)
from experiences.agents.toolset_of import AgentTools, server_value
from experiences.models import Agent, ToolServer
from experiences.rollouts.runtimes.base import Halted
from tests.support import mcp_server
from tests.support.callers import Caller
from tests.support.mcp_server import MCPHTTP
from tests.support.pages import html

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def offering() -> Iterator[MCPHTTP]:
    with MCPHTTP() as running:
        yield running


@pytest.fixture
def tools(adam: Any, offering: MCPHTTP) -> ToolServer:
    return tool_server_create(Actor(adam), name="sums", url=offering.url)


def names_of(agent: Agent) -> list[str]:
    """The tools that the agent's model may call."""
    own = AgentTools(Agent.objects.get(pk=agent.pk))

    async def asked() -> list[str]:
        try:
            return [spec.name for spec in (await own.toolset()).specs]
        finally:
            await own.aclose()

    return async_to_sync(asked)()


def test_two_agents_of_one_server_have_tools_of_their_own(operator: Actor, tools: ToolServer) -> None:
    one = agent_create(operator, name="One", tool_servers=[tools], granted_tools={str(tools.pk): ["add"]})
    two = agent_create(operator, name="Two", tool_servers=[tools], granted_tools={str(tools.pk): ["pid", "weather"]})
    assert names_of(one) == ["sums__add"]
    assert sorted(names_of(two)) == ["sums__pid", "sums__weather"]


def test_tools_that_a_server_adds_later_are_granted_to_no_agent(
    operator: Actor, adam: Any, tools: ToolServer, agent: Agent
) -> None:
    tool_server_update(Actor(adam), tools, tools=["add"])
    agent_update(operator, agent, tool_servers=[tools])
    assert agent.granted_tools == {str(tools.pk): ["add"]}
    tool_server_update(Actor(adam), tools, tools=[])  # it lists eleven now
    assert len(tool_server_offer(operator, tools).tools) > 5
    agent_update(operator, agent, description="saved once more", tool_servers=[tools])
    assert names_of(agent) == ["sums__add"]
    agent_update(operator, agent, granted_tools={str(tools.pk): ["add", "weather"]})
    assert sorted(names_of(agent)) == ["sums__add", "sums__weather"]
    changed = AuditEvent.objects.filter(action="agent.changed").latest("id")
    assert changed.after["tool_servers"] == {"sums": ["add", "weather"]}


def test_a_grant_that_an_admin_revokes_is_gone_from_all_agents(operator: Actor, adam: Any, tools: ToolServer) -> None:
    agent = agent_create(operator, name="One", tool_servers=[tools], granted_tools={str(tools.pk): ["add", "pid"]})
    tool_server_update(Actor(adam), tools, tools=["add"])
    assert names_of(agent) == ["sums__add"]
    with pytest.raises(Invalid, match="'pid' is not one of the tools that may be used"):
        agent_update(operator, agent, granted_tools={str(tools.pk): ["pid"]})


def test_an_empty_list_gives_the_server_up(operator: Actor, tools: ToolServer) -> None:
    agent = agent_create(operator, name="One", tool_servers=[tools], granted_tools={str(tools.pk): ["add"]})
    agent_update(operator, agent, tool_servers=[tools], granted_tools={str(tools.pk): []})
    assert not agent.tool_servers.exists() and agent.granted_tools == {} and names_of(agent) == []
    with pytest.raises(Invalid, match="none of the agent's tool servers"):
        agent_update(operator, agent, granted_tools={str(tools.pk): ["add"]})


def test_a_server_that_was_given_without_a_word_about_its_tools_is_not_used(agent: Agent, tools: ToolServer) -> None:
    agent.tool_servers.add(tools)
    with pytest.raises(Halted, match="It was not chosen which tools of sums") as halted:
        names_of(agent)
    assert halted.value.reason == "llm_refused"


def test_without_names_a_server_that_is_away_can_not_be_given(operator: Actor, adam: Any, agent: Agent) -> None:
    gone = tool_server_create(Actor(adam), name="gone", url="http://127.0.0.1:9/mcp")
    with pytest.raises(Invalid, match="What gone offers can't be seen now"):
        agent_update(operator, agent, tool_servers=[gone])
    agent_update(operator, agent, tool_servers=[gone], granted_tools={str(gone.pk): ["search"]})
    assert agent.granted_tools == {str(gone.pk): ["search"]}


def test_over_rest(olivia: Any, adam: Any, tools: ToolServer, agent: Agent) -> None:
    caller = Caller(olivia)
    offered = caller.post(f"tool-servers/{tools.pk}/offer").json()
    assert {"own_name": "text/shout it", "name": "sums__text_shout_it", "description": ""} in offered["tools"]
    body = {"tool_servers": [str(tools.pk)], "granted_tools": {str(tools.pk): ["text/shout it"]}}
    changed = caller.patch(f"agents/{agent.pk}", body)
    assert changed.status_code == 200, changed.json()
    assert changed.json()["granted_tools"] == {str(tools.pk): ["text/shout it"]}
    assert names_of(agent) == ["sums__text_shout_it"]


def test_the_form_shows_tools_with_their_descriptions_and_grants_what_is_ticked(
    olivia: Any, client: Client, tools: ToolServer, agent: Agent
) -> None:
    client.force_login(olivia)
    address = f"/agents/{agent.pk}/edit/"
    key = str(tools.pk)
    shown = html(client.post(f"/agents/server-tools/{key}/", {}))
    assert "Adds two numbers." in shown and shown.count("checked") == shown.count("checkbox") > 5
    form = {
        "name": agent.name, "slug": agent.slug, "philosophy": "react", "runtime": "action",
        "environment": "reasoning_gym", "max_tokens": "99",
    }  # fmt: skip
    ticked = {"tool_servers": [key], "tools_shown": [key], f"tools_of_{key}": ["add"]}
    assert client.post(address, form | ticked).status_code == 302
    assert names_of(agent) == ["sums__add"]
    page = html(client.get(address))
    assert f'name="tools_of_{key}" value="add" checked' in page
    Agent.objects.filter(pk=agent.pk).update(runtime="llm")
    assert "<code>add</code>" in html(client.get(f"/agents/{agent.pk}/"))
    Agent.objects.filter(pk=agent.pk).update(runtime="action")
    again = html(client.post(f"/agents/server-tools/{key}/", ticked))
    assert again.count("checked") == 1
    assert client.post(address, form | {"tools_shown": [key], f"tools_of_{key}": ["add"]}).status_code == 302
    assert names_of(agent) == [] and not agent.tool_servers.exists()


def test_an_agent_keeps_a_tool_that_is_not_offered_any_more(olivia: Any, client: Client, agent: Agent) -> None:
    agent.tools = ["int_calc"]
    agent.save()
    client.force_login(olivia)
    page = html(client.get(f"/agents/{agent.pk}/edit/"))
    [box] = re.findall(r'<input[^>]*name="tools"[^>]*value="int_calc"[^>]*>', page)
    assert "checked" in box and 'value="dec_calc"' not in page
    form = {
        "name": agent.name, "philosophy": "react", "runtime": "action", "environment": "reasoning_gym",
        "tools": ["int_calc"],
    }  # fmt: skip
    assert client.post(f"/agents/{agent.pk}/edit/", form).status_code == 302
    assert Agent.objects.get(pk=agent.pk).tools == ["int_calc"]


# -- what a program is given ------------------------------------------------------------------------------------------

COMMAND = shlex.join([sys.executable, mcp_server.PATH])


@pytest.fixture
def program(adam: Any, settings: Any) -> ToolServer:
    settings.MCP_COMMANDS = [(sys.executable, mcp_server.PATH)]
    return tool_server_create(
        Actor(adam), name="local", transport="stdio", command=COMMAND, variables={"SEARCH_API_KEY": "s3cret"}
    )


def test_a_programs_variables_are_visible_to_that_program_only(
    operator: Actor, adam: Any, olivia: Any, agent: Agent, program: ToolServer
) -> None:
    assert "s3cret" not in str(program.variables)
    agent_update(operator, agent, tool_servers=[program], granted_tools={str(program.pk): ["variable"]})
    own = AgentTools(agent)

    async def asked() -> str:
        try:
            return (await (await own.toolset()).call("local__variable", {"name": "SEARCH_API_KEY"})).output
        finally:
            await own.aclose()

    assert async_to_sync(asked)() == "s3cret"
    shown = Caller(adam).get(f"tool-servers/{program.pk}")
    assert shown.json()["variable_names"] == ["SEARCH_API_KEY"] and "s3cret" not in shown.content.decode()
    assert not AuditEvent.objects.filter(after__icontains="s3cret").exists()


def test_a_variable_that_is_left_empty_stays_and_one_that_is_left_out_goes(adam: Any, program: ToolServer) -> None:
    tool_server_update(Actor(adam), program, variables={"SEARCH_API_KEY": "", "OTHER_TOKEN": "t"})
    assert dict(server_value(program).variables) == {"SEARCH_API_KEY": "s3cret", "OTHER_TOKEN": "t"}
    tool_server_update(Actor(adam), program, variables={"OTHER_TOKEN": ""})
    assert dict(server_value(program).variables) == {"OTHER_TOKEN": "t"}
    tool_server_archive(Actor(adam), program)
    assert program.variables == {}


def test_another_command_needs_its_variables_again(adam: Any, program: ToolServer) -> None:
    for given in ({}, {"variables": {"SEARCH_API_KEY": ""}}):
        with pytest.raises(Invalid, match="enter its variables again"):
            tool_server_update(Actor(adam), program, command=f"{COMMAND} --stubborn", **given)
        program.refresh_from_db()
    tool_server_update(Actor(adam), program, command=f"{COMMAND} --stubborn", variables={"SEARCH_API_KEY": "new"})
    assert dict(server_value(program).variables) == {"SEARCH_API_KEY": "new"}


@pytest.mark.parametrize(
    "name", ["LD_PRELOAD", "PATH", "NODE_OPTIONS", "UV_INDEX_URL", "PYTHONSTARTUP", "a_key", "KEY"]
)
def test_no_variable_that_could_make_a_program_another_one(adam: Any, program: ToolServer, name: str) -> None:
    with pytest.raises(Invalid, match="a variable's name ends in"):
        tool_server_update(Actor(adam), program, variables={name: "x"})


def test_the_form_of_a_program(adam: Any, client: Client, program: ToolServer) -> None:
    client.force_login(adam)
    address = f"/tool-servers/{program.pk}/"
    page = html(client.get(address))
    assert "SEARCH_API_KEY=" in page and "s3cret" not in page
    form = {"name": "local", "transport": "stdio", "command": COMMAND, "variables": "SEARCH_API_KEY=\nX_TOKEN=a=b"}
    assert client.post(address, form).status_code == 302
    program.refresh_from_db()
    assert dict(server_value(program).variables) == {"SEARCH_API_KEY": "s3cret", "X_TOKEN": "a=b"}


def test_a_stranger_sees_no_tools(charlie: Any, client: Client, tools: ToolServer) -> None:
    client.force_login(charlie)
    assert client.post(f"/agents/server-tools/{tools.pk}/", {}).status_code == 404


def test_only_who_may_edit_agents_asks_a_server(stella: Any, tools: ToolServer) -> None:
    with pytest.raises(Forbidden):
        tool_server_offer(Actor(stella), tools)
