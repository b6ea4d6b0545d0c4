"""The page *Roles*: what it says is what the table of rights allows."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from django.test import Client

from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import NAMES, who_may_what
from agentcore_site.tenancy.roles import ROLE_MAY, Role

PEOPLE = {Role.OPERATOR: "olivia", Role.DEVELOPER: "dan", Role.ADMIN: "adam", Role.STAKEHOLDER: "stella"}


def test_every_right_has_words() -> None:
    assert frozenset().union(*ROLE_MAY.values()) <= set(NAMES)
    assert len({row.words for row in who_may_what()}) == len(who_may_what())


@pytest.mark.django_db
def test_the_page_shows_the_permissions_of_each_role(acme: Any, olivia: Any, dan: Any, adam: Any, stella: Any) -> None:
    people = {"olivia": olivia, "dan": dan, "adam": adam, "stella": stella}
    client = Client()
    client.force_login(stella)
    shown = unescape(client.get("/people/roles/").content.decode())
    rows = re.findall(r"<th scope=\"row\">(.*?)</th>(.*?)</tr>", shown, re.DOTALL)
    permissions = {
        words: [">yes<" in cell for cell in re.findall(r"<td>(.*?)</td>", cells, re.DOTALL)] for words, cells in rows
    }
    assert len(permissions) == len(who_may_what()) > 30
    for row in who_may_what():
        for role, says in zip(ROLE_MAY, permissions[row.words], strict=True):
            person = people[PEOPLE[Role(role)]]
            if row.action != "export":  # a permission of the person's besides
                assert Actor(person).may(row.action, acme.id) is says, (row.action, role)


@pytest.mark.django_db
def test_a_person_without_an_organisation_reads_the_page_of_roles_too() -> None:
    from tests.factories import UserFactory

    client = Client()
    assert client.get("/people/roles/").status_code == 302
    client.force_login(UserFactory(username="nobody-yet"))
    assert client.get("/people/roles/").status_code == 200
