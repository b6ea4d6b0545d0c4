"""Roles as groups and permissions of Django: made by the table, changed in the admin, checked everywhere."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission
from django.test import Client
from django.urls import reverse

from agentcore_site.audit.models import AuditEvent
from agentcore_site.lib.errors import Forbidden
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.members import who_may
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.permissions import require
from agentcore_site.tenancy.role_changes import groups_made, role_change
from agentcore_site.tenancy.role_groups import group_name, rights, role_rights
from agentcore_site.tenancy.roles import ADMINS_ALONE, EVERY_RIGHT, ROLE_MAY, Role, withheld
from tests import factories
from tests.support.callers import Caller
from tests.support.pages import html

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def groups() -> None:
    """As ``migrate`` leaves them; transactional tests empty their table."""
    groups_made()


def sent(role: str, *, given: set[str] = frozenset(), taken: set[str] = frozenset()) -> dict[str, Any]:  # type: ignore[assignment]
    """The form of a role's group with these ticks set and taken away."""
    wanted = (role_rights()[role] | given) - taken
    return {"permissions": [str(one.pk) for one in rights() if one.codename in wanted]}


def page_of(role: str) -> str:
    return reverse("admin:auth_group_change", args=[Group.objects.get(name=group_name(role)).pk])


@pytest.fixture
def boss(adam: Any) -> Client:
    client = Client()
    client.force_login(adam)
    return client


def test_each_role_is_a_group_with_the_rights_of_the_table() -> None:
    assert {one.codename for one in rights()} == EVERY_RIGHT
    for role, may in ROLE_MAY.items():
        group = Group.objects.get(name=group_name(role))
        assert set(group.permissions.values_list("codename", flat=True)) == may
        assert not group.user_set.exists()
    assert role_rights() == ROLE_MAY


def test_a_right_that_a_superuser_takes_from_a_role_is_refused_at_once_at_every_interface(
    boss: Client, olivia: Any, agent: Any, acme: Organization
) -> None:
    key = Caller(olivia)
    assert key.post(f"agents/{agent.slug}/test").status_code != 403
    answer = boss.post(page_of(Role.OPERATOR), sent(Role.OPERATOR, taken={"agent.edit"}), follow=True)
    assert answer.status_code == 200
    refused = key.patch(f"agents/{agent.slug}", {"description": "x"})
    assert refused.status_code == 403
    assert "your role is operator. Developers and admins may do this." in refused.json()["detail"]
    console = Client()
    console.force_login(olivia)
    assert console.post(f"/agents/{agent.pk}/edit/", {"name": "x"}).status_code == 403
    assert key.get("me").json()["organizations"][0]["may"].count("agent.edit") == 0
    # The page says what is, of each role.
    row = html(console.get("/people/roles/")).split(">edit agents<")[1].split("</tr>")[0]
    assert [">yes<" in cell for cell in row.split("<td>")[1:]] == [False, True, False, True]
    logged = AuditEvent.objects.get(action="role.changed")
    assert logged.actor == "adam" and set(logged.before["rights"]) - set(logged.after["rights"]) == {"agent.edit"}
    # And back again.
    boss.post(page_of(Role.OPERATOR), sent(Role.OPERATOR, given={"agent.edit"}))
    assert key.patch(f"agents/{agent.slug}", {"description": "x"}).status_code == 200


def test_a_right_that_is_given_is_had(boss: Client, dan: Any, acme: Organization) -> None:
    with pytest.raises(Forbidden):
        require(Actor(dan), "run.start", acme)
    assert dan not in who_may(acme.id, "run.start")
    boss.post(page_of(Role.DEVELOPER), sent(Role.DEVELOPER, given={"run.start"}))
    require(Actor(dan), "run.start", acme)
    assert dan in who_may(acme.id, "run.start")
    # A key has no more than its scopes allow of it.
    assert Actor(dan, scopes=frozenset({"training:view"})).may("run.start", acme.id) is False


@pytest.mark.parametrize(
    ("role", "given", "taken", "why"),
    [
        (Role.STAKEHOLDER, {"agent.edit"}, set(), "stakeholders read"),
        (Role.STAKEHOLDER, {"checkpoint.download"}, set(), "stakeholders read"),
        (Role.OPERATOR, {"members.edit"}, set(), "can take every other right"),
        (Role.DEVELOPER, {"endpoint.edit"}, set(), "can take every other right"),
        (Role.DEVELOPER, set(), {"view"}, "could open nothing"),
        (Role.ADMIN, set(), {"members.edit"}, "could not be led"),
    ],
)
def test_a_dangerous_change_is_refused_with_the_reason(
    boss: Client, role: str, given: set[str], taken: set[str], why: str
) -> None:
    before = role_rights()
    answer = boss.post(page_of(role), sent(role, given=given, taken=taken), follow=True)
    assert why in html(answer) and role_rights() == before
    assert not AuditEvent.objects.filter(action="role.changed").exists()


def test_no_role_beneath_the_admins_can_get_what_leads_to_everything() -> None:
    for right in ADMINS_ALONE:
        assert all(withheld(role, right) for role in Role if role != Role.ADMIN) and not withheld(Role.ADMIN, right)


def test_an_organisations_admin_sees_roles_and_changes_none(acme: Organization, dan: Any) -> None:
    carla = factories.UserFactory(username="carla", is_staff=True)
    factories.MembershipFactory(organization=acme, user=carla, role=Role.ADMIN)
    Group.objects.create(name="Accountants")
    client = Client()
    client.force_login(carla)
    shown = html(client.get(reverse("admin:auth_group_changelist")))
    assert "Role: operator" in shown and "Accountants" not in shown
    assert client.get(page_of(Role.DEVELOPER)).status_code == 200
    assert client.post(page_of(Role.DEVELOPER), sent(Role.DEVELOPER, given={"run.start"})).status_code == 403
    with pytest.raises(Forbidden, match="only who runs this site"):
        role_change(Actor(carla), Role.DEVELOPER, [*ROLE_MAY[Role.DEVELOPER], "run.start"])
    client.force_login(dan)
    assert client.get(page_of(Role.DEVELOPER)).status_code == 302  # no staff
    assert role_rights() == ROLE_MAY


def test_a_role_is_neither_renamed_deleted_nor_imitated(boss: Client) -> None:
    group = Group.objects.get(name=group_name(Role.OPERATOR))
    boss.post(page_of(Role.OPERATOR), sent(Role.OPERATOR) | {"name": "Others"})
    assert boss.post(reverse("admin:auth_group_delete", args=[group.pk]), {"post": "yes"}).status_code == 403
    chosen = {"action": "delete_selected", "_selected_action": [str(group.pk)], "post": "yes"}
    boss.post(reverse("admin:auth_group_changelist"), chosen)
    group.refresh_from_db()
    assert group.name == group_name(Role.OPERATOR)
    answer = boss.post(reverse("admin:auth_group_add"), {"name": "Role: boss", "permissions": []}, follow=True)
    assert "those of roles" in html(answer) and not Group.objects.filter(name="Role: boss").exists()
    made = {"name": "Accountants", "permissions": [str(rights().first().pk)]}  # type: ignore[union-attr]
    assert boss.post(reverse("admin:auth_group_add"), made).status_code == 200  # no right for a group of people
    plain = Permission.objects.get(codename="view_organization")
    assert boss.post(reverse("admin:auth_group_add"), made | {"permissions": [str(plain.pk)]}).status_code == 302


def test_an_upgrade_gives_new_rights_and_leaves_what_was_changed() -> None:
    operators, developers = (Group.objects.get(name=group_name(one)) for one in (Role.OPERATOR, Role.DEVELOPER))
    operators.permissions.remove(rights().get(codename="agent.edit"))
    developers.permissions.add(rights().get(codename="run.start"))
    rights().get(codename="release.make").delete()  # as if the next version brought it
    groups_made()
    result = role_rights()
    assert "agent.edit" not in result[Role.OPERATOR] and "run.start" in result[Role.DEVELOPER]
    assert "release.make" in result[Role.OPERATOR] and "release.make" not in result[Role.DEVELOPER]


def test_without_groups_the_table_holds(olivia: Any, acme: Organization) -> None:
    Group.objects.all().delete()
    assert role_rights() == ROLE_MAY and olivia in who_may(acme.id, "run.start")
    assert Actor(olivia).may("run.start", acme.id) and not Actor(olivia).may("members.edit", acme.id)


def test_rights_cost_no_query_of_their_own(olivia: Any, acme: Organization, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(1):
        actor = Actor(olivia)
        assert actor.may("run.start", acme.id) and not actor.may("members.edit", acme.id)
        require(actor, "view", acme)
