"""What every page of the console knows. Read only when a template asks: an error page must not need the database."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Membership
from budgets.pill import Pill, budget_pill


def console(request: HttpRequest) -> dict[str, Any]:
    """``membership``: the person's current one or nothing. ``may``: the actions that it allows. ``pill``: what the
    organisation spent this month, or nothing."""
    membership = SimpleLazyObject(lambda: _membership(request))
    return {
        "membership": membership,
        "may": SimpleLazyObject(lambda: _may(request, membership)),
        "pill": SimpleLazyObject(lambda: _pill(membership)),
    }


def _membership(request: HttpRequest) -> Membership | None:
    user = getattr(request, "user", None)
    return next(iter(Actor(user, door="console").memberships.values()), None)


def _may(request: HttpRequest, membership: Any) -> frozenset[str]:
    from agentcore_site.pages import allowed

    if not membership:
        return frozenset()
    return allowed(Actor(request.user, door="console"), membership.organization_id)


def _pill(membership: Any) -> Pill | None:
    return budget_pill(membership.organization_id) if membership else None
