"""A forgotten password: who gets a mail, what its link opens and for how long, and what ends with the old password."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from django.contrib.auth.tokens import PasswordResetTokenGenerator
from django.test import Client
from django.utils import timezone

from agentcore_site.audit.models import AuditEvent
from agentcore_site.identity.passwords import PER_ACCOUNT, PER_ADDRESS
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Mail, Organization
from agentcore_site.tenancy.tokens import family_start
from tests.support.pages import html

pytestmark = pytest.mark.django_db
BETTER = "a much better one 42"


@pytest.fixture
def lost(olivia: Any) -> Any:
    olivia.email = "olivia@acme.example"
    olivia.set_password("what was it")
    olivia.save()
    return olivia


def ask(name: str, address: str = "203.0.113.7") -> Any:
    return Client().post("/password/forgotten/", {"name": name}, REMOTE_ADDR=address)


def mailed() -> str:
    """The path of the newest mail's link."""
    [path] = re.findall(r"http://testserver(/password/\S+/)", Mail.objects.latest("created_at").body)
    return str(path)


def test_a_mailed_link_sets_another_password_once_and_ends_all_sessions(lost: Any, acme: Organization) -> None:
    elsewhere = Client()
    elsewhere.force_login(lost)
    tokens = family_start(Actor(lost))
    assert ask("OLIVIA@acme.example").status_code == 200
    path = mailed()
    assert Mail.objects.get().recipients == ["olivia@acme.example"]
    client = Client()
    page = client.get(path)
    assert page.status_code == 200 and "olivia" in html(page)
    assert (page["Cache-Control"], page["Referrer-Policy"]) == ("no-store", "same-origin")
    weak = client.post(path, {"password": "1234"})
    assert weak.status_code == 400 and "too short" in html(weak)
    assert client.post(path, {"password": BETTER}).status_code == 302
    lost.refresh_from_db()
    assert lost.check_password(BETTER)
    assert elsewhere.get("/jobs/").status_code == 302
    assert client.get("/api/v1/me", headers={"authorization": f"Bearer {tokens['access']}"}).status_code == 401
    for method in (client.get, client.post):
        assert method(path).status_code == 404
    assert Mail.objects.filter(subject="Your password was changed").count() == 1
    assert AuditEvent.objects.filter(action="person.password_changed", organization_id=acme.pk).count() == 1
    assert client.post("/sign-in/", {"username": "olivia", "password": BETTER}).status_code == 302


def test_a_host_header_chooses_no_port_of_the_mailed_link(lost: Any) -> None:
    Client().post("/password/forgotten/", {"name": "olivia"}, headers={"host": "testserver:9999"})
    assert mailed()
    Mail.objects.all().delete()
    Client().post("/password/forgotten/", {"name": "olivia"}, headers={"host": "testserver"}, SERVER_PORT="8000")
    assert "http://testserver:8000/password/" in Mail.objects.get().body


def test_an_hour_later_or_after_a_sign_in_the_link_opens_nothing(lost: Any) -> None:
    ask("olivia")
    path = mailed()
    later = timezone.now().replace(tzinfo=None) + timedelta(minutes=61)
    with mock.patch.object(PasswordResetTokenGenerator, "_now", return_value=later):
        assert Client().get(path).status_code == 404
    assert Client().get(path).status_code == 200
    Client().post("/sign-in/", {"username": "olivia", "password": "what was it"})
    assert Client().get(path).status_code == 404


@pytest.mark.parametrize("path", ["/password/x/y/", "/password/MQ/y/", "/password/OTk5OTk5OTk5OTk5OTk5OTk5OTk/a-b/"])
def test_an_invented_link_opens_nothing(lost: Any, path: str) -> None:
    assert Client().get(path).status_code == 404
    assert Client().post(path, {"password": BETTER}).status_code == 404


def test_whether_there_is_an_account_shows_in_nothing(lost: Any, charlie: Any) -> None:
    pages = [html(ask(name)) for name in ("olivia", "nobody@acme.example")]
    answers = {re.sub(r"If \S+ has", "If ... has", one[one.index("<main") : one.index("</main>")]) for one in pages}
    assert len(answers) == 1 and Mail.objects.count() == 1
    lost.is_active = False
    lost.save()
    ask("olivia@acme.example")
    lost.is_active = True
    lost.save()
    lost.memberships.all().delete()
    ask("olivia@acme.example")
    assert Mail.objects.count() == 1
    for empty in ("", "   ", "\x00"):
        refused = ask(empty)
        assert refused.status_code == 400 and "Enter your e-mail address." in html(refused)


def test_a_person_gets_few_of_these_mails_and_an_address_asks_for_few(lost: Any, adam: Any) -> None:
    for n in range(PER_ACCOUNT + 2):
        assert ask("olivia", f"203.0.113.{n}").status_code == 200
    assert Mail.objects.count() == PER_ACCOUNT
    with mock.patch("agentcore_site.identity.passwords.PER_ACCOUNT", 1_000):
        answers = [ask("olivia", "198.51.100.7").status_code for _ in range(PER_ADDRESS + 1)]
    assert answers == [200] * PER_ADDRESS + [429]
    unknown = [ask("nobody@acme.example", "198.51.100.8").status_code for _ in range(PER_ADDRESS + 1)]
    assert unknown == answers


@pytest.mark.django_db(transaction=True)
def test_new_password_lets_in_who_was_locked_out_by_wrong_passwords(lost: Any) -> None:
    client = Client(REMOTE_ADDR="203.0.113.9")
    codes = [client.post("/sign-in/", {"username": "olivia", "password": "no"}).status_code for _ in range(12)]
    assert codes[-1] == 429
    ask("olivia")
    client.post(mailed(), {"password": BETTER})
    assert client.post("/sign-in/", {"username": "olivia", "password": BETTER}).status_code == 302
