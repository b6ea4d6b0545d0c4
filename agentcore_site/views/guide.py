"""The guide for newcomers: a part of the overview until a release is made, and a page of its own."""

from __future__ import annotations

from typing import Any, Final

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from agentcore_site.console.cookies import keep_in_browser
from agentcore_site.console.pages import page, post_page
from agentcore_site.first_steps import Guide
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import current_organization, require

HIDDEN: Final = "guide_hidden"  # a cookie


@page
def get_started(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The guide also where it is over or hidden."""
    home = current_organization(actor)
    require(actor, "agent.edit", home)
    return render(request, "agentcore_site/get_started.html", _context(Guide(actor, home)))


@post_page
def hide(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Takes the guide from the overview in this browser, or shows it there again."""
    response = redirect("overview")
    if request.POST.get("hidden") == "yes":
        messages.success(request, "The guide is hidden. The search (Ctrl K) finds it by the words Get started.")
        return keep_in_browser(request, response, HIDDEN, "yes")
    response.delete_cookie(HIDDEN)
    return response


def guide_shown(request: HttpRequest, actor: Actor) -> dict[str, Any]:
    """The context of the guide on the overview; {} where it is over, hidden, or for other people."""
    guide = None if request.COOKIES.get(HIDDEN) == "yes" else _guide(actor)
    return {} if guide is None or guide.is_over else _context(guide)


def _guide(actor: Actor) -> Guide | None:
    membership = next(iter(actor.memberships.values()), None)
    if membership is None or not actor.may("agent.edit", membership.organization_id):
        return None
    return Guide(actor, membership.organization)


def _context(guide: Guide) -> dict[str, Any]:
    steps = guide.steps
    to_do = [step for step in steps if not step.done]
    return {
        "steps": steps,
        "steps_done": len(steps) - len(to_do),
        "next_step": to_do[0] if to_do else None,
        "launched": guide.run is not None,
    }
