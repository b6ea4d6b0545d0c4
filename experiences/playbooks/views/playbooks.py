"""Playbooks: the list over all agents, an agent's page with its tabs, and what makes, switches and deletes one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from django.contrib import messages
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from agentcore_site.console.pages import Sort, allowed, listing, matching, page, post_page, query_params
from agentcore_site.lib.errors import DomainError, Invalid
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from experiences.models import Agent, ExecutionTrace, Experience, ExperienceStatus, Playbook
from experiences.models.agent_lookup import agent_get, agents_visible
from experiences.playbooks.adoption_preview import room_of
from experiences.playbooks.forms import ItemForm
from experiences.playbooks.presenters.evolutions import evolution_tab
from experiences.playbooks.presenters.items import (
    PlaybookOut,
    groups_of,
    items_of,
    last_evolution,
    taken,
    tokens_of,
    verdict,
)
from experiences.playbooks.selectors import (
    WAITING,
    agent_holder,
    compiled,
    playbook_get,
    playbooks_visible,
    traces_visible,
    versions_of,
)
from experiences.playbooks.services.evolutions import evolution_fault
from experiences.playbooks.services.playbooks import playbook_create, playbook_delete, playbook_switch

SHOWN: Final = 8
SORTS: Final = (
    Sort("changed", "last changed", "updated_at"),
    Sort("agent", "agent", "agent__name", descending=False),
    Sort("items", "most items", "section_count"),
    Sort("executions", "most executions", "traces"),
    Sort("waiting", "most to review", "waiting"),
)
STATES: Final = (
    ("waiting", "To review"),
    ("failed", "Last evolution failed"),
    ("by_hand", "Manual only"),
)
TRACE_SORTS: Final = (
    Sort("newest", "newest first", "recorded_at"),
    Sort("slowest", "slowest", "duration_ms"),
    Sort("quickest", "quickest", "duration_ms", descending=False),
)
OUTCOMES: Final = (("success", "succeeded"), ("failure", "failed"))
TABS: Final = (
    ("items", "Items"),
    ("context", "As text"),
    ("versions", "Versions"),
    ("evolution", "Evolution"),
    ("executions", "Executions"),
)

# -- the list ----------------------------------------------------------------------------------------------------------


@page
def playbooks(request: HttpRequest, actor: Actor) -> HttpResponse:
    everything = playbooks_visible(actor)
    query, state = query_params(request, "q", "state")
    rows = _filtered(everything, query, state)
    found = listing(request, rows, SORTS, one="playbook", of=everything, columns=PlaybookOut)
    context = {
        "listing": found,
        "rows": [_row(row) for row in found.rows],
        "state": state,
        "states": STATES,
        "without": agents_visible(actor).filter(playbook=None).order_by("name")[:SHOWN],
    }
    return render(request, "playbooks/playbooks.html", context)


def _filtered(rows: QuerySet[Playbook], query: str, state: str) -> QuerySet[Playbook]:
    rows = matching(rows, query, "agent__name", "agent__slug")
    rows = rows.annotate(waiting=Count("deltas", filter=Q(deltas__state__in=WAITING)))
    if state == "waiting":
        rows = rows.filter(waiting__gt=0)
    if state == "failed":
        rows = rows.exclude(last_error="")
    return rows.filter(agent__evolves=False) if state == "by_hand" else rows


def _row(playbook: Any) -> dict[str, Any]:
    return {"playbook": playbook, "tokens": tokens_of(playbook)}


# -- one agent's page --------------------------------------------------------------------------------------------------


@page
def playbook(request: HttpRequest, actor: Actor, agent_id: Any) -> HttpResponse:
    return shown(request, actor, agent_get(actor, agent_id))


def shown(request: HttpRequest, actor: Actor, agent: Agent, form: ItemForm | None = None) -> HttpResponse:
    """The page; ``form`` is a refused one, which keeps what was typed."""
    found = playbooks_visible(actor).filter(agent=agent).first()
    context: dict[str, Any] = {
        "agent": agent,
        "may": allowed(actor, agent.organization_id),
        "lessons": Experience.objects.filter(agent=agent, status=ExperienceStatus.ACTIVE).count(),
    }
    if found is None:
        return render(request, "playbooks/playbook_none.html", context)
    tab = "items" if form is not None else request.GET.get("tab", "items")
    hidden = set() if "data.view" in context["may"] else {"executions"}
    tabs = [one for one in TABS if one[0] not in hidden]
    tab = tab if tab in dict(tabs) else "items"
    context |= _head(found, context["may"]) | (READ[tab](request, actor, found) if tab in READ else {})
    if tab == "items" and "playbook.edit" in context["may"]:
        context["form"] = form or ItemForm.of(None, found.version)
    context |= {"tab": tab, "tabs": tabs}
    return render(request, "playbooks/playbook.html", context, status=form.code if form else 200)


def _head(found: Playbook, may: frozenset[str]) -> dict[str, Any]:
    items, last = items_of(found), last_evolution(found)
    return {
        "playbook": found,
        "groups": groups_of(items),
        "measured": any(item.effect is not None and item.effect.known for item in items),
        "verdict": verdict(found, items),
        "tokens": tokens_of(found),
        "room": room_of(found.agent, found),
        "last": last,
        "taken": taken(last) if last else "",
        "holder": agent_holder(found.agent_id),
        "fault": evolution_fault(found) if "playbook.evolve" in may else "",
        "n_waiting": found.deltas.filter(state__in=WAITING).count(),
    }


def _versions(request: HttpRequest, actor: Actor, found: Playbook) -> dict[str, Any]:
    sorts = (Sort("newest", "newest first", "number"),)
    return {"listing": listing(request, versions_of(found).select_related("job"), sorts, one="version")}


def _executions(request: HttpRequest, actor: Actor, found: Playbook) -> dict[str, Any]:
    everything = traces_visible(actor, found.agent)
    outcome, query = query_params(request, "outcome", "q")
    rows = matching(everything, query, "task_id")
    if outcome in dict(OUTCOMES):
        rows = rows.filter(success=outcome == "success")
    listed: QuerySet[ExecutionTrace] = rows.defer("inputs", "outputs")
    executions = listing(request, listed, TRACE_SORTS, one="execution")
    return {"listing": executions, "outcome": outcome, "outcomes": OUTCOMES}


def _context(request: HttpRequest, actor: Actor, found: Playbook) -> dict[str, Any]:
    try:
        return {"served": compiled(actor, found.agent_id)}
    except DomainError as error:
        return {"refusal": error.message}


def _evolution(request: HttpRequest, actor: Actor, found: Playbook) -> dict[str, Any]:
    return evolution_tab(actor, found)


READ: Final[dict[str, Callable[[HttpRequest, Actor, Playbook], dict[str, Any]]]] = {
    "context": _context,
    "versions": _versions,
    "evolution": _evolution,
    "executions": _executions,
}

# -- writes ------------------------------------------------------------------------------------------------------------


@post_page
def create(request: HttpRequest, actor: Actor, agent_id: Any) -> HttpResponse:
    agent = agent_get(actor, agent_id)
    playbook_create(actor, agent=agent)
    messages.success(request, "Made. Write its first item, or put into it what the agent learned.")
    return redirect("experiences:playbook", agent_id=agent.pk)


@post_page
def switch(request: HttpRequest, actor: Actor, agent_id: Any) -> HttpResponse:
    found = playbook_get(actor, agent_id)
    evolves = request.POST.get("evolves") == "on"
    playbook_switch(actor, found, evolves=evolves)
    messages.success(
        request, "The playbook evolves automatically again." if evolves else "Stopped: only manual changes."
    )
    return redirect("experiences:playbook", agent_id=agent_id)


@post_page
def delete(request: HttpRequest, actor: Actor, agent_id: Any) -> HttpResponse:
    """Deleting can't be undone, so the form asks for the agent's name (its slug)."""
    found = playbook_get(actor, agent_id)
    require(actor, "playbook.edit", found.organization_id)
    slug = found.agent.slug
    if request.POST.get("confirm", "").strip() != slug:
        raise Invalid(f"To delete the playbook, type the agent's name: {slug}.", fields={"confirm": "Not the name."})
    executions = request.POST.get("executions") == "on"
    playbook_delete(actor, found, executions=executions)
    left = "and so are its executions" if executions else "its executions are kept"
    messages.success(request, f"The playbook of {found.agent.name} is deleted, {left}.")
    return redirect("experiences:playbook", agent_id=agent_id)
