"""Values for every template of the console. Read only when a template asks: error pages must not need the database."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from agentcore_site.console.menu import ShownEntry, menu
from agentcore_site.notices.selectors import own_time_zone, unread_count
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.authentication import actor_of
from budgets.presenters.topbar import budget_pill
from experiences.playbooks.selectors import waiting_count


def console(request: HttpRequest) -> dict[str, Any]:
    """``membership``: the person's current one or nothing. ``may``: the actions that it allows. ``pill``: what the
    organisation spent this month, or nothing. ``unread``: how many notices of the person are. ``zone``: the person's
    time zone, "" for the browser's. ``menu``: the sections of the console's menu."""
    actor = cache(lambda: actor_of(request) if hasattr(request, "user") else Actor(None))  # a refusal may come earlier
    membership = SimpleLazyObject(lambda: next(iter(actor().memberships.values()), None))
    may = SimpleLazyObject(lambda: _may(actor(), membership))
    return {
        "membership": membership,
        "may": may,
        "pill": SimpleLazyObject(lambda: budget_pill(membership.organization_id) if membership else None),
        "unread": SimpleLazyObject(lambda: unread_count(actor())),
        "zone": SimpleLazyObject(lambda: own_time_zone(actor())),
        "menu": lambda: _menu(request, may, lambda: waiting_count(actor())),
    }


def _menu(request: HttpRequest, may: Any, waiting: Callable[[], int]) -> list[list[ShownEntry]]:
    return menu(request.path_info, may, staff=bool(getattr(request.user, "is_staff", False)), waiting=waiting)


def _may(actor: Actor, membership: Any) -> frozenset[str]:
    from agentcore_site.console.pages import allowed

    if not membership:
        return frozenset()
    return allowed(actor, membership.organization_id)
