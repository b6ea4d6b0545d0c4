"""Versions of a playbook: the difference of two, the way back to one, and lessons that become a new one."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render

from agentcore_site.console.pages import allowed, page, post_page, whole_number
from agentcore_site.lib.errors import Conflict, Invalid
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.authentication import actor_of
from agentcore_site.tenancy.permissions import require
from budgets.llm.tokens import middle
from experiences.learning.playbooks.items import CATEGORIES, Category
from experiences.learning.rendering import playbook_context
from experiences.lessons.presenters import lessons
from experiences.models import Agent, Experience, Playbook
from experiences.models.agent_lookup import agent_get
from experiences.playbooks.adoption_preview import Adoption, adoptable, adoption, faults, room_of
from experiences.playbooks.forms import CHOICES
from experiences.playbooks.presenters.items import NOT_YET, differing, differing_by, tokens_of
from experiences.playbooks.selectors import agent_holder, playbook_get, sections_of, version_get, versions_differ
from experiences.playbooks.services.adoption import playbook_adopt
from experiences.playbooks.services.playbooks import playbook_rollback

HIGHEST: Final = 2**31 - 1


@page
def diff(request: HttpRequest, actor: Actor, agent_id: Any) -> HttpResponse:
    """Differences of two versions. From the newest to an earlier one it is also the preview of going back."""
    playbook = playbook_get(actor, agent_id)
    a = _number(request.GET, "a", max(1, playbook.version - 1))
    b = _number(request.GET, "b", playbook.version)
    before, after = version_get(playbook, a), version_get(playbook, b)
    context = {
        "agent": playbook.agent,
        "playbook": playbook,
        "may": allowed(actor, playbook.organization_id),
        "before": before,
        "after": after,
        "differing": differing(versions_differ(playbook, a, b)),
        "cost": _cost(_tokens(playbook, b) - _tokens(playbook, a)),
        "going_back": a == playbook.version and b < a,
    }
    return render(request, "playbooks/playbook_diff.html", context)


@post_page
def rollback(request: HttpRequest, actor: Actor, agent_id: Any) -> HttpResponse:
    playbook = playbook_get(actor, agent_id)
    require(actor, "playbook.edit", playbook.organization_id)
    version = whole_number(request.POST, "to")
    if version is None:
        raise Invalid("Say which version to go back to.", fields={"to": "A number."})
    playbook_rollback(actor, playbook, version=version, expected=whole_number(request.POST, "version"))
    messages.success(request, f"Version {playbook.version} holds what version {version} held. It is the playbook now.")
    return redirect("experiences:playbook", agent_id=agent_id)


@page
def adopt(request: HttpRequest, actor: Actor, agent_id: Any) -> HttpResponse:
    """Lessons that go into production: what would change, and on a POST the step itself."""
    agent = agent_get(actor, agent_id)
    given = request.POST if request.method == "POST" else request.GET
    playbook, category = Playbook.objects.filter(agent=agent).first(), _category(given)
    if request.method != "POST":
        return _preview(request, agent, playbook, _first(agent, playbook, given), category)
    require(actor, "playbook.edit", agent.organization_id)
    chosen = _chosen(agent, given)
    try:
        made = playbook_adopt(actor, agent, chosen, category=category, expected=whole_number(request.POST, "version"))
    except (Invalid, Conflict) as error:
        return _preview(request, agent, playbook, chosen, category, error)
    lessons_are = "1 lesson is" if len(chosen) == 1 else f"{len(chosen)} lessons are"
    messages.success(request, f"{lessons_are} in the playbook: version {made.version}. {NOT_YET}")
    return redirect("experiences:playbook", agent_id=agent.pk)


def _preview(
    request: HttpRequest,
    agent: Agent,
    playbook: Playbook | None,
    chosen: list[Experience],
    category: Category,
    error: Invalid | Conflict | None = None,
) -> HttpResponse:
    plan = adoption(agent, playbook, chosen, category)
    context = {
        "agent": agent,
        "playbook": playbook,
        "may": allowed(actor_of(request), agent.organization_id),
        "holder": agent_holder(agent.pk),
        "lessons": _offered(agent, playbook, plan, chosen),
        "n_chosen": len(plan.taken),
        "room": room_of(agent, playbook),
        "plan": plan,
        "differing": differing_by(plan.curated.changes),
        "tokens": middle(plan.context),
        "tokens_before": tokens_of(playbook) if playbook else 0,
        "category": category,
        "categories": CHOICES,
        "error": error,
    }
    return render(request, "playbooks/playbook_adopt.html", context, status=error.code if error else 200)


def _offered(agent: Agent, playbook: Playbook | None, plan: Adoption, chosen: list[Experience]) -> list[dict[str, Any]]:
    """Each active lesson of the agent, whether it is chosen, and why it can't be."""
    every = adoptable(agent)
    refused = {**faults(agent, playbook, plan.before, every), **plan.refused}
    keys = {experience.pk for experience in chosen}
    return [
        {"lesson": lesson, "row": lesson.row, "fault": refused.get(lesson.row.pk, ""), "chosen": lesson.row.pk in keys}
        for lesson in lessons(every)
    ]


def _first(agent: Agent, playbook: Playbook | None, given: QueryDict) -> list[Experience]:
    """The lessons that the address names; where it names none, the best that have room."""
    if "lesson" in given or "picked" in given:
        return _chosen(agent, given)
    every = adoptable(agent)
    refused = faults(agent, playbook, sections_of(playbook) if playbook else [], every)
    return [experience for experience in every if experience.pk not in refused][: room_of(agent, playbook)]


def _chosen(agent: Agent, given: QueryDict) -> list[Experience]:
    named = {_uuid(value) for value in given.getlist("lesson")}
    return [experience for experience in adoptable(agent) if experience.pk in named]


def _uuid(value: str) -> UUID | None:
    try:
        return UUID(value)
    except ValueError:
        return None


def _category(given: QueryDict) -> Category:
    named = given.get("category", "learnings")
    return next((category for category in CATEGORIES if category == named), "learnings")


def _number(given: QueryDict, name: str, otherwise: int) -> int:
    number = whole_number(given, name, digits=11)
    return otherwise if number is None else min(number, HIGHEST)


def _cost(tokens: int) -> str:
    """The cost of a difference in each call."""
    if not tokens:
        return "as many tokens per call"
    return f"{abs(tokens):,} token{'' if abs(tokens) == 1 else 's'} {'more' if tokens > 0 else 'fewer'} per call"


def _tokens(playbook: Playbook, version: int) -> int:
    return middle(playbook_context(sections_of(playbook, version)))
