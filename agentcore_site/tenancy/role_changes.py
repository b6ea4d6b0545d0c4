"""Groups of roles are made after ``migrate``, and changed by superusers within what is safe (``role_groups``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.apps import apps
from django.contrib.auth.models import Group, Permission
from django.contrib.contenttypes.models import ContentType
from django.db import transaction

from agentcore_site.audit.services import record
from agentcore_site.lib.errors import Forbidden, Invalid
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import NAMES
from agentcore_site.tenancy.role_groups import group_name, rights
from agentcore_site.tenancy.roles import EVERY_RIGHT, ROLE_MAY, Role, kept_by, withheld


def groups_made(using: str = "default", **_: Any) -> None:
    """Makes permissions and groups, or what is missing of them. A receiver of ``post_migrate``."""
    about = ContentType.objects.db_manager(using).get_for_model(apps.get_model("tenancy", "Organization"))
    there = {
        permission.codename: permission for permission in Permission.objects.using(using).filter(content_type=about)
    }
    new = sorted(EVERY_RIGHT - there.keys())
    made = [Permission(content_type=about, codename=one, name=NAMES[one]) for one in new]
    there |= {permission.codename: permission for permission in Permission.objects.using(using).bulk_create(made)}
    for role, may in ROLE_MAY.items():
        group, is_new = Group.objects.using(using).get_or_create(name=group_name(role))
        group.permissions.add(*(there[one] for one in sorted(may if is_new else may.intersection(new))))


@transaction.atomic
def role_change(actor: Actor, role: str, wanted: Iterable[str]) -> Mapping[str, list[str]]:
    """Sets what a role may do, in every organisation of the site. Returns what was given and taken.

    Raises:
        Forbidden: the actor is no superuser.
        Invalid: the role would get what it may not have, or lose what it can't be without; the message says why.
    """
    if not getattr(actor.user, "is_superuser", False) or actor.scopes is not None:
        raise Forbidden("What a role may do holds in every organisation: only who runs this site changes it.")
    group = Group.objects.select_for_update(no_key=True).get(name=group_name(role))
    now = {right.codename: right for right in rights()}
    before, after = set(group.permissions.values_list("codename", flat=True)) & EVERY_RIGHT, {*wanted}
    _check(role, before, after)
    group.permissions.set([one for codename, one in now.items() if codename in after])
    moved = {"given": sorted(after - before), "taken": sorted(before - after)}
    if any(moved.values()):
        record(actor, "role.changed", group, before={"rights": sorted(before)}, after={"rights": sorted(after)})
    return moved


def _check(role: str, before: set[str], after: set[str]) -> None:
    label = Role(role).label.lower()
    problems = [f"{NAMES.get(one, one)}: {why}" for one in sorted(after - before) if (why := withheld(role, one))]
    problems += [f"{NAMES[one]}: {why}" for one in sorted(before - after) if (why := kept_by(role, one))]
    if problems:
        message = f"The role {label} stays as it is. {' '.join(problems)}"
        raise Invalid(message, fields={"permissions": message})
