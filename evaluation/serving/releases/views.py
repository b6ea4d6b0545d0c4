"""Pages of skills: the organisations' keys, verification, and import into an agent after a preview."""

from __future__ import annotations

import base64
from typing import Any, Final
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from agentcore_site.console.pages import page, post_page, query_params
from agentcore_site.lib.errors import Conflict, Invalid, TooLarge
from agentcore_site.templatetags.figures import count
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from evaluation.serving.releases.skill_imports import STATUSES, skill_import, skill_keys, skill_preview, skill_report
from evaluation.serving.releases.skill_reading import MOST_PACKED
from experiences.models import Agent, AgentRuntime
from experiences.models.agent_lookup import agent_get, agents_visible

MOST_AGENTS: Final = 200  # in the form; a link of each agent's page leads here with the agent chosen
REFUSALS: Final = (Invalid, Conflict, TooLarge)


@page
def skills(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The keys, and the form; after a POST the report on the file and what an import would do."""
    if request.method != "POST":
        [ref] = query_params(request, "agent")
        return _shown(request, actor, agent_get(actor, ref) if ref else None)
    ref, key = request.POST.get("agent", ""), request.POST.get("key", "")[:64]
    agent = agent_get(actor, ref) if ref else None
    try:
        data = _uploaded(request)
        report = skill_report(actor, data, key=key)
        context: dict[str, Any] = {"report": report, "status": dict(STATUSES)[report.status]}
        if agent is not None and actor.may("agent.edit", agent.organization_id):
            proposed = skill_preview(agent, report)
            fresh = [one for one in proposed if one.is_new]
            context |= {"proposed": proposed, "fresh": len(fresh), "flagged": sum(bool(one.suspicion) for one in fresh)}
            context["packed"] = base64.b64encode(data).decode()
    except REFUSALS as error:
        return _shown(request, actor, agent, key=key, problem=error)
    return _shown(request, actor, agent, key=key, **context)


@post_page
def skill_bring(request: HttpRequest, actor: Actor, agent_id: Any) -> HttpResponse:
    """Imports the file that the preview showed."""
    agent = agent_get(actor, agent_id)
    require(actor, "agent.edit", agent.organization_id)
    key = request.POST.get("key", "")[:64]
    try:
        done = skill_import(actor, agent, _packed(request.POST.get("packed", "")), key=key)
    except REFUSALS as error:
        return _shown(request, actor, agent, key=key, problem=error)
    if n := sum(one.is_new for one in done.proposed):
        noun = "lesson waits" if n == 1 else "lessons wait"
        messages.success(request, f"{count(n)} {noun} in quarantine: approve or refuse each.")
    else:
        messages.success(request, f"{agent.name} has all of them already. Nothing was imported.")
    return redirect(f"{reverse('experiences:library')}?{urlencode({'status': 'quarantined', 'agent': agent.slug})}")


def _shown(
    request: HttpRequest,
    actor: Actor,
    agent: Agent | None,
    *,
    key: str = "",
    problem: Invalid | Conflict | TooLarge | None = None,
    **context: Any,
) -> HttpResponse:
    editable = [pk for pk in actor.organization_ids if actor.may("agent.edit", pk)]
    rows = agents_visible(actor).filter(organization__in=editable).exclude(runtime=AgentRuntime.ACTION)
    agents = list(rows.order_by("name")[: MOST_AGENTS + 1])
    context |= {
        "keys": skill_keys(actor),
        "agents": agents[:MOST_AGENTS],
        "more_agents": len(agents) > MOST_AGENTS,
        "agent": agent,
        "key": key,
        "problem": problem.message if problem else "",
    }
    return render(request, "serving/skills.html", context, status=problem.code if problem else 200)


def _uploaded(request: HttpRequest) -> bytes:
    """Raises:
    Invalid: there is no file.
    TooLarge: it exceeds the limit of a skill."""
    file = request.FILES.get("file")
    if file is None:
        raise Invalid("Choose a file.", fields={"file": "Choose a file."})
    return file.read(MOST_PACKED + 1)


def _packed(text: str) -> bytes:
    """Raises:
    Invalid: it is not what the preview sent."""
    try:
        found = base64.b64decode(text, validate=True)
    except ValueError:
        found = b""
    if not found:
        raise Invalid("Choose a file, and look at what is in it first.")
    return found
