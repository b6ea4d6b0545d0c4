"""Rights of each role on this site: the table of ``roles.py``, as groups and permissions of Django, to be changed.

A right is a ``Permission``, a role a ``Group``; both are made after ``migrate``, by the table. A right that is new to
the database goes to the roles that the table gives it; what was changed by hand stays. A role without a group has what
the table says. The rights of a person's roles come with the query that reads the memberships (``memberships_of``). So
a change counts at the next request of every process, without a further query.

Groups of roles are the site's: they hold in every organisation, so only a superuser changes them. No person is in one:
who has which role in which organisation is in ``Membership``.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final
from uuid import UUID

from django.contrib.auth.models import Group, Permission
from django.db import DEFAULT_DB_ALIAS, connection
from django.db.models import CharField, Exists, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Concat

from agentcore_site.tenancy.organizations import Membership, Organization
from agentcore_site.tenancy.roles import EVERY_RIGHT, ROLE_MAY

PREFIX: Final = "Role: "
_JOINED: Final = (("membership", Membership), ("organization", Organization))


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


@cache
def _memberships_query() -> str:
    """Written once by hand: to build and compile it by the ORM costs 2 ms, and each request runs it."""
    columns = [f"{name}.{column.column}" for name, model in _JOINED for column in model._meta.concrete_fields]
    return f"""
        SELECT {", ".join(columns)}, CASE WHEN auth_group.id IS NOT NULL THEN ARRAY(
            SELECT codename FROM auth_permission JOIN auth_group_permissions ON permission_id = auth_permission.id
            WHERE group_id = auth_group.id
        ) END
        FROM tenancy_membership membership JOIN tenancy_organization organization ON organization.id = organization_id
        LEFT JOIN auth_group ON auth_group.name = '{PREFIX}' || role
        WHERE user_id = %(person)s AND (%(organization)s::uuid IS NULL OR organization_id = %(organization)s::uuid)
        ORDER BY membership.created_at, membership.id
    """  # noqa: S608  (names of columns)


def memberships_of(person: Any, organization_id: UUID | None = None) -> list[Membership]:
    """A person's memberships from the oldest on, each with its organisation and ``rights``: those of its role, or null
    where the role has no group. ``organization_id``: in this organisation only."""
    names = [[field.attname for field in model._meta.concrete_fields] for _, model in _JOINED]
    first = len(names[0])
    found = []
    with connection.cursor() as cursor:
        cursor.execute(_memberships_query(), {"person": person.pk, "organization": organization_id})
        for row in cursor.fetchall():
            membership: Any = Membership.from_db(DEFAULT_DB_ALIAS, names[0], row[:first])
            membership.organization = Organization.from_db(DEFAULT_DB_ALIAS, names[1], row[first:-1])
            membership.user, membership.rights = person, row[-1]
            found.append(membership)
    return found


def rights_of(membership: Any) -> frozenset[str]:
    """Rights of the role of a membership that ``memberships_of`` read."""
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
