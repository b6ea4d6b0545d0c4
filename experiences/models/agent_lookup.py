"""Agents as an actor sees them: the lookup that every noun shares."""

from __future__ import annotations

import uuid
from typing import Any, Final

from django.db.models import QuerySet

from agentcore_site.lib.errors import Missing
from agentcore_site.tenancy.actors import Actor
from experiences.models import Agent

OFFERED: Final = 200  # in a list to choose from; the page of any other leads on


def agents_visible(actor: Actor, *, archived: bool = False) -> QuerySet[Agent]:
    rows = Agent.objects.visible_to(actor).select_related("organization", "endpoint")
    return rows if archived else rows.filter(archived_at=None)


def agent_get(actor: Actor, name: Any) -> Agent:
    """An agent by id or slug.

    Raises:
        Missing: there is none of that name in the actor's organisations.
    """
    found = agent_find(actor, name)
    if found is None:
        raise Missing(f"There is no agent {str(name)[:60]!r}.")
    return found


def agent_find(actor: Actor, name: Any) -> Agent | None:
    """An agent by id or slug; None where there is none of that name in the actor's organisations."""
    rows = agents_visible(actor, archived=True)
    try:
        return rows.filter(id=uuid.UUID(str(name))).first()
    except ValueError:
        return rows.filter(slug=str(name)).first()


def agents_offered(rows: QuerySet[Agent]) -> list[Agent]:
    """The first of these agents by name, for a list to choose from: with thousands in it no person could read it, and a
    page would take a second to write it. They know their names only."""
    return list(rows.select_related(None).only("organization_id", "name", "slug").order_by("name", "id")[:OFFERED])
