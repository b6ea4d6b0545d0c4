"""Making and changing agents."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from agentcore_site.console.pages import page
from agentcore_site.lib.errors import Conflict, Invalid
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import current_organization, require
from experiences.agents.forms import AgentForm
from experiences.agents.selectors import endpoint_get, endpoints_visible, tool_server_get, tool_servers_visible
from experiences.agents.services.agent_tests import AgentTest, agent_test
from experiences.agents.services.agents import agent_archive, agent_create, agent_update
from experiences.agents.services.tool_servers import tool_server_offer
from experiences.lessons.selectors import pack_get, packs_visible
from experiences.models import Agent
from experiences.models.agent_lookup import agent_get
from experiences.rollouts.environments import environments


@page
def new(request: HttpRequest, actor: Actor) -> HttpResponse:
    require(actor, "agent.edit", current_organization(actor))
    form = AgentForm(request.POST or None, **_choices(actor))
    if request.method == "POST" and form.is_valid():
        try:
            made = agent_create(actor, **_values(actor, form))
        except (Invalid, Conflict) as error:
            form.refuse(error)
        else:
            messages.success(request, f"{made.name} was made. Launch a training job when you are ready.")
            return redirect("agent", ref=made.pk)
    return _form(request, form, None)


@page
def edit(request: HttpRequest, actor: Actor, agent_id: Any) -> HttpResponse:
    agent = agent_get(actor, agent_id)
    require(actor, "agent.edit", agent.organization_id)
    choices = _choices(actor)
    form = AgentForm(request.POST, **choices) if request.method == "POST" else AgentForm.of(agent, **choices)
    if request.method == "POST" and form.is_valid():
        values = _values(actor, form)
        values["slug"] = values["slug"] or agent.slug
        try:
            agent_update(actor, agent, **values)
        except (Invalid, Conflict) as error:
            form.refuse(error)
        else:
            messages.success(request, "Saved. Jobs that have not ended keep their configuration and their models.")
            return redirect("agent", ref=agent.pk)
    return _form(request, form, agent_get(actor, agent_id))


@require_POST
@page
def archive(request: HttpRequest, actor: Actor, agent_id: Any) -> HttpResponse:
    agent = agent_archive(actor, agent_get(actor, agent_id))
    messages.success(request, f"{agent.name} is archived. Its runs and evaluations stay.")
    return redirect("agents")


@require_POST
@page
def server_tools(request: HttpRequest, actor: Actor, server_id: Any) -> HttpResponse:
    """What a tool server offers, to be ticked in the form; what was ticked there stays ticked."""
    server = tool_server_get(actor, server_id)
    found = tool_server_offer(actor, server)
    ticked = request.POST.getlist(f"tools_of_{server.pk}")
    shown = str(server.pk) in request.POST.getlist("tools_shown")
    tools = [
        {"own_name": tool.own_name, "description": tool.description, "granted": not shown or tool.own_name in ticked}
        for tool in found.tools
    ]
    context = {"server": server, "tools": tools if found.ok else _named(ticked, shown)}
    return render(request, "experiences/_server_tools.html", context | {"problem": "" if found.ok else found.message})


@require_POST
@page
def test(request: HttpRequest, actor: Actor) -> HttpResponse:
    """One small task to the agent over HTTP that a form describes."""
    said = {name: request.POST.get(name, "").strip() for name in ("agent", "url", "authorization", "endpoint", "model")}
    injects = "inject_context" in request.POST
    try:
        found = agent_test(
            actor,
            agent_get(actor, said["agent"]) if said["agent"] else None,
            url=said["url"],
            authorization=said["authorization"],
            inject_context=injects,
            endpoint=endpoint_get(actor, said["endpoint"]) if said["endpoint"] else None,
            model=said["model"],
        )
    except (Invalid, Conflict) as error:
        found = AgentTest(False, error.message)
    return render(request, "experiences/_agent_test.html", {"found": found, "injects": injects})


@page
def options(request: HttpRequest, actor: Actor) -> HttpResponse:
    """What the chosen environment's options mean, for the form."""
    return render(request, "experiences/_options.html", _options(request.GET.get("environment", "")))


def _choices(actor: Actor) -> dict[str, Any]:
    return {
        "endpoints": endpoints_visible(actor),
        "servers": tool_servers_visible(actor),
        "packs": packs_visible(actor),
    }


def _values(actor: Actor, form: AgentForm) -> dict[str, Any]:
    values = dict(form.cleaned_data)
    values["collects"] = not values.pop("opted_out")
    for name in ("max_tokens", "leave_out_rate"):
        if values[name] is None:
            del values[name]
    for name in ("endpoint", "reflector"):
        values[name] = endpoint_get(actor, values[name]) if values[name] else None
    values["prompt_pack"] = pack_get(actor, values["prompt_pack"]) if values["prompt_pack"] else None
    values["granted_tools"] = {
        key: names for key, names in (values["granted_tools"] or {}).items() if key in values["tool_servers"]
    }
    values["tool_servers"] = [tool_server_get(actor, one) for one in values["tool_servers"]]
    return values


def _form(request: HttpRequest, form: AgentForm, agent: Agent | None) -> HttpResponse:
    status = 400 if form.is_bound and form.errors else 200
    context = {
        "form": form,
        "agent": agent,
        "servers": _servers(form, agent),
        **_options(str(form["environment"].value() or "")),
    }
    return render(request, "experiences/agent_form.html", context, status=status)


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


def _options(environment: str) -> dict[str, Any]:
    if environment not in environments.names():
        return {"environment": "", "help": {}}
    return {"environment": environment, "help": dict(environments.get(environment).option_help)}
