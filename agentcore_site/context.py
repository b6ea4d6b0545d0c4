"""What every page of the console knows."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from agentcore_site.tenancy.actors import Actor


def console(request: HttpRequest) -> dict[str, Any]:
    """``actor``, the current ``membership``, and ``may``: the set of actions that its role allows."""
    from agentcore_site.tenancy.roles import ROLE_MAY

    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return {"membership": None, "may": frozenset()}
    actor = Actor(user, door="console")
    membership = next(iter(actor.memberships.values()), None)
    allowed = set(ROLE_MAY.get(membership.role, frozenset())) if membership else set()
    if membership and membership.can_export:
        allowed.add("export")
    return {"membership": membership, "may": allowed}
