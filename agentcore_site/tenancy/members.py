"""Members of an organisation, their roles, and leaving it. None is added here: people accept invitations."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from agentcore_site.audit.services import record
from agentcore_site.lib.errors import Conflict, Invalid, Missing
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Membership, Organization, organization_id_of
from agentcore_site.tenancy.permissions import require
from agentcore_site.tenancy.role_groups import roles_that_may
from agentcore_site.tenancy.roles import Role


def require_members_edit(actor: Actor, organization: Any) -> None:
    """Lets an organisation's admin pass, and in the Django admin a superuser.

    Raises:
        Missing, Forbidden: the actor is neither.
    """
    if not (actor.interface == "admin" and actor.user.is_superuser):
        require(actor, "members.edit", organization_id_of(organization))


def organizations_visible(actor: Actor) -> QuerySet[Organization]:
    """The organisations that the actor belongs to."""
    return Organization.objects.filter(pk__in=actor.organization_ids if actor.may_read else ())


def members_of(actor: Actor, organization: Any) -> QuerySet[Membership]:
    """The members of an organisation by name, for its admins.

    Raises:
        Missing, Forbidden: the actor may not edit members.
    """
    require_members_edit(actor, organization)
    rows = Membership.objects.filter(organization_id=organization_id_of(organization))
    return rows.select_related("user", "organization").order_by("user__username")


def admins_of(organization: Any) -> QuerySet[Membership]:
    """The admins of an organisation who can sign in. For our own use: it asks no actor."""
    rows = Membership.objects.filter(role=Role.ADMIN, user__is_active=True)
    return rows.filter(organization_id=organization_id_of(organization))


def who_may(organization_id: UUID, action: str) -> list[Any]:
    """The people of an organisation who may do that and can sign in, by name. For our own use: it asks no actor."""
    rows = Membership.objects.filter(roles_that_may(action), organization_id=organization_id, user__is_active=True)
    return [row.user for row in rows.select_related("user").order_by("user__username")]


def member_get(actor: Actor, organization: Any, key: int) -> Membership:
    """Raises:
    Missing: the organisation has no such member."""
    if not Membership.objects.filter(pk=key, organization_id=organization_id_of(organization)).exists():
        raise Missing("There is no such member.")  # before rights are looked at: what is elsewhere is not there
    row = members_of(actor, organization).filter(pk=key).first()
    if row is None:
        raise Missing("There is no such member.")
    return row


def role_check(role: str) -> str:
    """Raises:
    Invalid: there is no such role."""
    if role not in Role.values:
        message = f"The role must be one of {', '.join(Role.values)}."
        raise Invalid(message, fields={"role": message})
    return role


@transaction.atomic
def member_change(actor: Actor, member: Membership, *, role: str, can_export: bool) -> Membership:
    """Gives a member another role.

    Raises:
        Invalid: there is no such role.
        Conflict: it is the last admin.
    """
    require_members_edit(actor, member.organization_id)
    stored = _locked(member)
    if role_check(role) != Role.ADMIN:
        _not_the_last_admin(stored)
    before = {"role": stored.role, "can_export": stored.can_export}
    after = {"role": role, "can_export": can_export}
    if before != after:
        Membership.objects.filter(pk=stored.pk).update(**after)
        stored.role, stored.can_export = role, can_export
        record(actor, "membership.changed", stored, before=before, after=after)
    return stored


@transaction.atomic
def member_remove(actor: Actor, member: Membership) -> None:
    """Takes a person out of an organisation. Their account and what they made stay.

    Raises:
        Conflict: it is the last admin.
    """
    require_members_edit(actor, member.organization_id)
    stored = _locked(member)
    _not_the_last_admin(stored)
    record(actor, "membership.deleted", stored, before={"role": stored.role, "can_export": stored.can_export})
    stored.delete()


def _locked(member: Membership) -> Membership:
    """The member as it is now. All admins are locked with it, so that two of them can't remove each other at once."""
    rows = Membership.objects.select_for_update(of=("self",), no_key=True).filter(
        organization_id=member.organization_id
    )
    kept = {row.pk: row for row in rows.select_related("user", "organization").order_by("pk")}
    if member.pk not in kept:
        raise Missing("There is no such member.")
    return kept[member.pk]


def _not_the_last_admin(member: Membership) -> None:
    if member.role == Role.ADMIN and not admins_of(member.organization_id).exclude(pk=member.pk).exists():
        raise Conflict("This is the organisation's last admin. Make another member an admin first.")
