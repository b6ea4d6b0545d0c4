"""The first account of an empty site, by the link that only its operator has."""

from __future__ import annotations

import re
import threading
from datetime import timedelta
from io import StringIO
from typing import Any
from unittest import mock

import pytest
from django.contrib.auth import get_user_model
from django.core import signing
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client

from agentcore_site.audit.models import AuditEvent
from agentcore_site.identity.first_account import first_account_path
from agentcore_site.tenancy.models import Membership, Organization
from tests.support.pages import html

ANSWERS = {
    "organization": "Harbour & Pine",
    "username": "nora",
    "email": "nora@harbour.example",
    "password": "a long way to the sea",
}


def printed() -> str:
    out = StringIO()
    call_command("first_account", stdout=out)
    return out.getvalue().strip()


@pytest.mark.django_db
def test_the_link_makes_an_organisation_and_its_admin_who_is_signed_in() -> None:
    client = Client()
    assert "This site has no account yet" in html(client.get("/sign-in/"))
    path = printed()
    assert path.startswith("/first-account/") and "Harbour" not in html(client.get(path))
    response = client.post(path, ANSWERS, follow=True)
    assert response.redirect_chain == [("/", 302)] and "Connect a model" in html(response)
    person, home = get_user_model().objects.get(), Organization.objects.get()
    assert (person.username, person.is_superuser, home.name, home.slug) == (
        "nora",
        True,
        "Harbour & Pine",
        "harbour-pine",
    )
    member = Membership.objects.get()
    assert (member.organization, member.user, member.role) == (home, person, "admin")
    actions = AuditEvent.objects.filter(organization_id=home.pk).values_list("action", flat=True)
    assert {"user.created", "membership.created"} <= set(actions)
    assert client.get("/admin/").status_code == 200
    assert "This site has no account yet" not in html(Client().get("/sign-in/"))


@pytest.mark.django_db
def test_the_link_is_good_for_a_day_and_until_there_is_an_account() -> None:
    path = first_account_path()
    with mock.patch("time.time", return_value=signing.time.time() + timedelta(days=1, minutes=1).total_seconds()):
        assert Client().get(path).status_code == 404
    assert Client().get("/first-account/forged/").status_code == Client().get(path[:-3] + "/").status_code == 404
    assert Client().post(path, ANSWERS).status_code == 302
    for method in (Client().get, Client().post):
        assert method(path).status_code == 404
    assert first_account_path() == "" and get_user_model().objects.count() == 1
    with pytest.raises(CommandError, match="has an account"):
        printed()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("password", "password", "too common"),
        ("password", "short", "too short"),
        ("email", "nora", "valid email"),
        ("username", "nora the first", "valid username"),
        ("organization", "", "required"),
        ("organization", "x" * 121, "at most 120"),
        ("username", "n\x00ra", "valid username"),
    ],
)
def test_wrong_answers_are_said_beside_their_field_and_make_nothing(field: str, value: str, words: str) -> None:
    response = Client().post(first_account_path(), ANSWERS | {field: value})
    shown = html(response)
    assert response.status_code == 400 and words in shown
    assert field == "organization" or 'value="Harbour &amp; Pine"' in shown, "what was typed stays"
    assert not re.search(r'type="password"[^>]*value=', shown)
    assert not get_user_model().objects.exists() and not Organization.objects.exists()


@pytest.mark.django_db
def test_an_organisation_that_is_there_keeps_its_name() -> None:
    Organization.objects.create(name="Harbour & Pine", slug="other")
    response = Client().post(first_account_path(), ANSWERS)
    assert response.status_code in (400, 409) and "An organisation has this name." in html(response)
    assert not get_user_model().objects.exists()


@pytest.mark.django_db(transaction=True)
def test_of_two_at_once_only_the_first_makes_an_account() -> None:
    path, statuses = first_account_path(), []

    def ask(name: str) -> None:
        given: dict[str, Any] = ANSWERS | {"username": name, "organization": name, "email": f"{name}@harbour.example"}
        statuses.append(Client().post(path, given).status_code)
        connection.close()

    both = [threading.Thread(target=ask, args=[name]) for name in ("nora", "otto")]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert sorted(statuses) == [302, 404] and get_user_model().objects.count() == 1
