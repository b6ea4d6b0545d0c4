"""People named by ``@username`` in a comment: members of the organisation, each notified by their own settings."""

from __future__ import annotations

import re
from typing import Any, Final
from uuid import UUID

from agentcore_site.notices.catalogue import MENTIONED
from agentcore_site.notices.events import event_record
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Membership
from agentcore_site.tenancy.permissions import current_organization, require

MOST: Final = 20  # people of one comment
OFFERED: Final = 8  # names for what was typed
NAME = re.compile(r"(?<![\w@.+-])@([\w@.+-]{1,150})")


def mentioned(organization_id: UUID, text: str) -> list[Any]:
    """The members whom the text names and who can sign in, at most ``MOST``, by name. Names of others are words."""
    names = {form for name in NAME.findall(text) for form in (name, name.rstrip(".+-@"))}
    if not names:
        return []
    return [row.user for row in _members(organization_id).filter(user__username__in=names)[:MOST]]


def mention_notify(actor: Actor, organization_id: UUID, text: str, *, former: str = "", place: str, path: str) -> None:
    """Notifies the members whom ``text`` names and ``former`` does not. In the transaction of the comment.

    ``place``: of the comment, as in "a comment on Train Router". ``path``: of the page about it.
    """
    who = Actor.of(actor)
    before = {user.pk for user in mentioned(organization_id, former)} | {getattr(who.user, "pk", None)}
    for user in mentioned(organization_id, text):
        if user.pk not in before:
            event_record(
                organization_id,
                MENTIONED,
                text=f"{who.name} mentions {user.username} in {place}.",
                data={},
                path=path,
                owner=user,
            )


def names_offered(actor: Actor, typed: str) -> list[str]:
    """Names of members that begin with the typed text, at most ``OFFERED``, for people who may comment.

    Raises:
        Missing, Forbidden: the actor may not comment.
    """
    organization = current_organization(actor)
    require(actor, "agent.edit", organization)
    rows = _members(organization.pk).filter(user__username__istartswith=typed)
    return list(rows.values_list("user__username", flat=True)[:OFFERED])


def _members(organization_id: UUID) -> Any:
    rows = Membership.objects.filter(organization_id=organization_id, user__is_active=True)
    return rows.select_related("user").order_by("user__username")
