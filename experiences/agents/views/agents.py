"""Making and changing agents."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from agentcore_site.console.pages import page, post_page
from agentcore_site.console.row_pages import RowPages
from agentcore_site.lib.errors import Conflict, Invalid
from agentcore_site.tenancy.actors import Actor
from experiences.agents.forms import AgentForm
from experiences.agents.option_fields import options_context
from experiences.agents.selectors import endpoint_get, tool_server_get
from experiences.agents.services.agent_tests import AgentTest, agent_test
from experiences.agents.services.agents import agent_archive, agent_create, agent_update
from experiences.agents.services.demo_agent import demo_agent
from experiences.agents.services.tool_servers import tool_server_offer
from experiences.models import Agent
from experiences.models.agent_lookup import agent_get, agents_visible
from experiences.rollouts.environments import environments
from experiences.rollouts.rewards import rewards


class AgentPages(RowPages):
    """Its list and one agent's page are of the site as a whole."""

    one = ("agent", "agent")
    right = "agent.edit"
    form = AgentForm
    templates = ("", "agents/agent_form.html")
    addresses = ("agents", "agent")
    notices = (
        "{} was created. Launch a training job when you are ready.",
        "Saved. Jobs that have not ended keep their configuration and their models.",
        "{} is archived. Its runs and evaluations stay.",
    )
    reads = (agents_visible, agent_get)
    writes = (agent_create, agent_update, agent_archive)

    prefilled = ("environment", "runtime", "endpoint")

    def form_options(self, actor: Actor) -> dict[str, Any]:
        return {"actor": actor}

    def context(self, actor: Actor, form: Any, row: Any) -> dict[str, Any]:
        options = [form.options_context(name) for name in ("reward_options", "environment_options")]
        return {"servers": _servers(form, row), "of_reward": options[0], "of_environment": options[1]}


pages = AgentPages()


@post_page
def demo(request: HttpRequest, actor: Actor) -> HttpResponse:
    made = demo_agent(actor)
    messages.success(request, f"{made.name} is here. Launch its first job.")
    return redirect("overview")


@post_page
def server_tools(request: HttpRequest, actor: Actor, server_id: Any) -> HttpResponse:
    """Tools of a tool server, to be ticked in the form; ticked ones stay ticked."""
    server = tool_server_get(actor, server_id)
    found = tool_server_offer(actor, server)
    ticked = request.POST.getlist(f"tools_of_{server.pk}")
    shown = str(server.pk) in request.POST.getlist("tools_shown")
    tools = [
        {"own_name": tool.own_name, "description": tool.description, "granted": not shown or tool.own_name in ticked}
        for tool in found.tools
    ]
    context = {"server": server, "tools": tools if found.ok else _named(ticked, shown)}
    return render(request, "agents/_server_tools.html", context | {"problem": "" if found.ok else found.message})


@post_page
def test(request: HttpRequest, actor: Actor) -> HttpResponse:
    """One small task to the agent over HTTP that a form describes."""
    typed = {
        name: request.POST.get(name, "").strip() for name in ("agent", "url", "authorization", "endpoint", "model")
    }
    injects = "inject_context" in request.POST
    try:
        found = agent_test(
            actor,
            agent_get(actor, typed["agent"]) if typed["agent"] else None,
            url=typed["url"],
            authorization=typed["authorization"],
            inject_context=injects,
            endpoint=endpoint_get(actor, typed["endpoint"]) if typed["endpoint"] else None,
            model=typed["model"],
        )
    except (Invalid, Conflict) as error:
        found = AgentTest(False, error.message)
    return render(request, "agents/_agent_test.html", {"found": found, "injects": injects})


@page
def options(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Inputs for the options of the reward or environment that was chosen in the form."""
    of_reward = "reward" in request.GET
    field, registry = ("reward_options", rewards) if of_reward else ("environment_options", environments)
    context = options_context(field, registry, request.GET.get("reward" if of_reward else "environment", ""), {})
    return render(request, "agents/_option_fields.html", {"of": context})


def _servers(form: AgentForm, agent: Agent | None) -> list[dict[str, Any]]:
    """The tool servers to choose from, each with the tools that the agent has of it or that were just ticked."""
    chosen = [str(one) for one in form["tool_servers"].value() or ()]
    granted = form["granted_tools"].value() or {} if form.is_bound else agent.granted_tools if agent is not None else {}
    return [
        {
            "server": server,
            "chosen": str(server.pk) in chosen,
            "tools": _named(granted.get(str(server.pk), []), str(server.pk) in granted),
        }
        for server in form.servers
    ]


def _named(names: list[str], shown: bool) -> list[dict[str, Any]] | None:
    """Tools as far as they are known without asking their server; None where nothing is."""
    return [{"own_name": name, "granted": True} for name in names] if shown else None
