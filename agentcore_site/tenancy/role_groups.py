"""Rights of each role on this site: the table of ``roles.py``, as groups and permissions of Django, to be changed.

A right is a ``Permission``, a role a ``Group``; both are made after ``migrate``, by the table. A right that is new to
the database goes to the roles that the table gives it; what was changed by hand stays. A role without a group has what
the table says. The rights of a person's roles come with the query that reads the memberships (``rights_beside``). So
a change counts at the next request of every process, without a further query.

Groups of roles are the site's: they hold in every organisation, so only a superuser changes them. No person is in one:
who has which role in which organisation is in ``Membership``.
"""

from __future__ import annotations

from typing import Any, Final

from django.contrib.auth.models import Group, Permission
from django.contrib.postgres.expressions import ArraySubquery
from django.contrib.postgres.fields import ArrayField
from django.db.models import Case, CharField, Exists, OuterRef, Q, QuerySet, Value, When
from django.db.models.functions import Concat

from agentcore_site.tenancy.roles import EVERY_RIGHT, ROLE_MAY

PREFIX: Final = "Role: "


def group_name(role: str) -> str:
    return f"{PREFIX}{role}"


def role_of(group: Group) -> str | None:
    """The role that a group says the rights of; None for a group of people of the admin."""
    role = group.name.removeprefix(PREFIX)
    return role if group.name == group_name(role) and role in ROLE_MAY else None


def rights() -> QuerySet[Permission]:
    """The permissions that are rights of roles."""
    ours = {"content_type__app_label": "tenancy", "content_type__model": "organization"}
    return Permission.objects.filter(**ours, codename__in=EVERY_RIGHT)


def rights_beside(memberships: QuerySet[Any]) -> QuerySet[Any]:
    """The memberships, each with ``rights``: those of its role; null where the role has no group."""
    name = Concat(Value(PREFIX), OuterRef("role"), output_field=CharField())
    of_group = ArraySubquery(Permission.objects.filter(group__name=name).order_by().values("codename"))
    has_group = Exists(Group.objects.filter(name=name))
    known = Case(When(has_group, then=of_group), default=None, output_field=ArrayField(CharField()))
    return memberships.annotate(rights=known)


def rights_of(membership: Any) -> frozenset[str]:
    """Rights of the role of a membership that was read by ``rights_beside``."""
    if membership.rights is None:
        return ROLE_MAY.get(membership.role, frozenset())
    return frozenset(membership.rights) & EVERY_RIGHT


def role_rights() -> dict[str, frozenset[str]]:
    """Rights of each role, in the order of the table. One query."""
    named = {group_name(role): role for role in ROLE_MAY}
    rows = Group.objects.filter(name__in=named).values_list("name", "permissions__codename")
    found: dict[str, set[str]] = {}
    for name, codename in rows:
        found.setdefault(named[name], set()).add(codename)
    return {
        role: frozenset(found[role]) & EVERY_RIGHT if role in found else default for role, default in ROLE_MAY.items()
    }


def roles_that_may(action: str) -> Q:
    """Memberships whose role allows the action, as a condition: no query of its own."""
    name = Concat(Value(PREFIX), OuterRef("role"), output_field=CharField())
    default = Q(role__in=[role for role, may in ROLE_MAY.items() if action in may])
    given = Exists(Group.objects.filter(name=name, permissions__codename=action))
    return Q(given) | Q(default & ~Exists(Group.objects.filter(name=name)))
