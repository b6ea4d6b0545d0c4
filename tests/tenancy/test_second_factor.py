"""The second factor: asked for at every place that takes a password, good once, and counted when it is wrong."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyotp
import pytest
from django.core.cache import cache
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client

from agentcore_site.audit.models import AuditEvent
from agentcore_site.identity.invitations import invitation_create
from agentcore_site.identity.second_factor import enrolment_confirm, enrolment_of
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.codes import code_taken
from agentcore_site.tenancy.models import Membership, Organization, SecondFactor
from agentcore_site.tenancy.roles import Role
from agentcore_site.tenancy.sign_in import PER_ACCOUNT
from agentcore_site.vault import opened
from tests import factories
from tests.factories import PASSWORD
from tests.support.callers import Caller
from tests.support.pages import html

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def fresh_cache(settings: Any) -> None:
    cache.clear()
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


class Authenticator:
    """An app on a telephone. Each code is of a period later, as if that much time had passed."""

    def __init__(self, person: Any) -> None:
        self.person = person
        self.recovery = enrolment_confirm(Actor(person, interface="console"), self.of(enrolment_of(person)))

    @staticmethod
    def of(row: SecondFactor) -> str:
        return pyotp.TOTP(opened(row.sealed)).now()

    def code(self) -> str:
        SecondFactor.objects.filter(user=self.person).update(last_step=0)
        return self.of(SecondFactor.objects.get(user=self.person))

    def wrong(self) -> str:
        near = {pyotp.TOTP(opened(self.row.sealed)).at(time.time() + 30 * n) for n in range(-3, 4)}
        return next(one for one in ("123456", "234567", "345678") if one not in near)

    @property
    def row(self) -> SecondFactor:
        return SecondFactor.objects.get(user=self.person)


@pytest.fixture
def app(olivia: Any) -> Authenticator:
    return Authenticator(olivia)


@pytest.fixture
def chief(acme: Organization) -> Any:
    """An admin of the organisation who is no superuser."""
    user = factories.UserFactory(username="chief", is_staff=True)
    factories.MembershipFactory(organization=acme, user=user, role=Role.ADMIN)
    return user


def password(name: str, path: str = "/sign-in/", **more: str) -> tuple[Client, Any]:
    client = Client()
    return client, client.post(path, {"username": name, "password": PASSWORD} | more)


def token(name: str, **more: str) -> Any:
    return Caller().post("token", {"username": name, "password": PASSWORD} | more)


# -- signing in --------------------------------------------------------------------------------------------------------


def test_a_password_alone_opens_nothing(app: Authenticator) -> None:
    client, answer = password("olivia", next="/agents/")
    assert answer["Location"] == "/sign-in/code/"
    assert client.get("/jobs/")["Location"].startswith("/sign-in/")
    assert client.get("/api/v1/me").status_code in {401, 403}
    wrong = client.post("/sign-in/code/", {"code": app.wrong()})
    assert wrong.status_code == 400 and "This code is wrong" in html(wrong)
    assert client.get("/jobs/").status_code == 302
    assert client.post("/sign-in/code/", {"code": app.code()})["Location"] == "/agents/"
    assert client.get("/jobs/").status_code == 200
    failed = AuditEvent.objects.get(action="person.sign_in_failed")
    assert failed.after == {"username": "olivia", "step": "second factor"}


def test_the_admins_own_sign_in_asks_for_the_code_too(adam: Any) -> None:
    app = Authenticator(adam)
    client, answer = password("adam", "/admin/login/?next=/admin/tenancy/")
    assert answer["Location"] == "/sign-in/code/"
    assert client.get("/admin/")["Location"].startswith("/admin/login/")
    assert client.post("/sign-in/code/", {"code": app.code()})["Location"] == "/admin/tenancy/"
    assert client.get("/admin/").status_code == 200
    _, answer = password("adam", "/admin/login/?next=https://evil.example/")
    assert answer["Location"] == "/sign-in/code/"
    client, _ = password("adam", "/admin/login/", next="https://evil.example/")
    assert client.post("/sign-in/code/", {"code": app.code()})["Location"] == "/admin/"


def test_tokens_ask_for_the_code_in_the_field_otp(app: Authenticator) -> None:
    needed = token("olivia")
    assert needed.status_code == 401 and "otp" in needed.content.decode()
    assert token("olivia", otp=app.wrong()).status_code == 401
    given = token("olivia", otp=app.code())
    assert given.status_code == 200 and "access" in given.json()


def test_a_code_is_good_once_at_all_interfaces_together(app: Authenticator) -> None:
    code = app.code()
    assert token("olivia", otp=code).status_code == 200
    assert token("olivia", otp=code).status_code == 401
    client, _ = password("olivia")
    assert client.post("/sign-in/code/", {"code": code}).status_code == 400
    # One from before the newest that was taken is used up with it.
    row = app.row
    earlier = pyotp.TOTP(opened(row.sealed)).at(time.time() - 30)
    assert not code_taken(app.person, earlier)


def test_a_recovery_code_signs_in_once(app: Authenticator) -> None:
    assert len(set(app.recovery)) == 10
    assert app.recovery[0] not in str(SecondFactor.objects.values())
    client, _ = password("olivia")
    assert client.post("/sign-in/code/", {"code": app.recovery[0].upper()}).status_code == 302
    again, _ = password("olivia")
    assert again.post("/sign-in/code/", {"code": app.recovery[0]}).status_code == 400
    assert token("olivia", otp=app.recovery[1]).status_code == 200
    assert "8 recovery codes left" in html(client.get("/account/"))


@pytest.mark.parametrize("guess", ["code", "token"])
def test_codes_are_guessed_as_seldom_as_passwords(guess: str, app: Authenticator) -> None:
    def tried(n: int, code: str) -> int:
        place = {"REMOTE_ADDR": f"203.0.113.{n}"}
        credentials = {"username": "olivia", "password": PASSWORD}
        client = Client()
        if guess == "token":
            return client.post("/api/v1/token", credentials | {"otp": code}, "application/json", **place).status_code
        first = client.post("/sign-in/", credentials, **place)
        return (
            first.status_code
            if first.status_code == 429
            else int(client.post("/sign-in/code/", {"code": code}, **place).status_code)
        )

    # A right password in between resets no count.
    statuses = [tried(n, app.wrong()) for n in range(PER_ACCOUNT + 1)]
    assert 429 in statuses and not {200, 302} & set(statuses)
    assert tried(99, app.code()) == 429


def test_the_step_of_the_code_is_open_for_ten_minutes_and_for_the_same_password(app: Authenticator) -> None:
    client, _ = password("olivia")
    session = client.session
    session["second_step"] = session["second_step"] | {"at": int(time.time()) - 601}
    session.save()
    assert client.post("/sign-in/code/", {"code": app.code()})["Location"] == "/sign-in/"
    client, _ = password("olivia")
    app.person.set_password("quite another one")
    app.person.save()
    assert client.post("/sign-in/code/", {"code": app.code()})["Location"] == "/sign-in/"
    assert Client().get("/sign-in/code/")["Location"] == "/sign-in/"


# -- setting one up ----------------------------------------------------------------------------------------------------


def test_a_person_sets_one_up_with_a_first_code(olivia: Any) -> None:
    client = Client()
    client.force_login(olivia)
    page = client.get("/account/second-factor/")
    shown = page.content.decode()
    row = SecondFactor.objects.get()
    assert "<svg" in shown and page["Cache-Control"] == "no-store, private"
    assert not re.search(r"(src|href)=\"https?://", shown) and "style=" not in shown
    assert opened(row.sealed) not in row.sealed
    # Until its code came it counts for nothing.
    assert password("olivia")[1]["Location"] == "/"
    assert client.post("/account/second-factor/", {"code": "000000"}).status_code == 400
    done = client.post("/account/second-factor/", {"code": Authenticator.of(row)})
    assert len(re.findall(r"<code>\w{5}-\w{5}</code>", done.content.decode())) == 10
    assert "no-store" in done["Cache-Control"]
    assert client.get("/account/second-factor/").status_code == 409
    assert password("olivia")[1]["Location"] == "/sign-in/code/"
    assert AuditEvent.objects.filter(action="second_factor.added", actor="olivia").count() == 1


def test_recovery_codes_are_replaced_and_the_factor_is_taken_off_with_a_code(app: Authenticator) -> None:
    client = Client()
    client.force_login(app.person)
    assert client.post("/account/second-factor/recovery/", {"code": app.wrong()}).status_code == 400
    assert client.post("/account/second-factor/recovery/", {"code": app.code()}).status_code == 200
    assert not code_taken(app.person, app.recovery[0])
    assert client.post("/account/second-factor/remove/", {"code": app.wrong()}).status_code == 400
    assert client.post("/account/second-factor/remove/", {"code": app.code()}).status_code == 302
    assert not SecondFactor.objects.exists() and password("olivia")[1]["Location"] == "/"


# -- of an organisation ------------------------------------------------------------------------------------------------


def test_an_organisation_that_requires_a_second_factor_leads_to_its_page_at_the_next_sign_in(
    acme: Organization, chief: Any, olivia: Any
) -> None:
    admin = Client()
    admin.force_login(chief)
    assert admin.post("/people/second-factor/", {"sent": "yes", "required": "on"}).status_code == 302
    assert AuditEvent.objects.get(action="organization.changed").after == {"second_factor": True}
    client, answer = password("olivia", next="/agents/")
    assert answer["Location"] == "/sign-in/second-factor/"
    assert client.get("/jobs/").status_code == 302 and token("olivia").status_code == 403
    assert password("chief", "/admin/login/")[1]["Location"] == "/sign-in/second-factor/"
    assert client.get("/sign-in/second-factor/").status_code == 200
    code = Authenticator.of(SecondFactor.objects.get(user=olivia))
    done = client.post("/sign-in/second-factor/", {"code": code})
    assert done.status_code == 200 and 'href="/agents/"' in done.content.decode()
    assert client.get("/jobs/").status_code == 200
    off = client.post("/account/second-factor/remove/", {"code": "123456"})
    assert off.status_code == 409 and "asks for a second factor" in html(off)


def test_an_invited_person_sets_up_a_second_factor_first(acme: Organization, chief: Any) -> None:
    Organization.objects.update(second_factor=True)
    made: list[str] = []
    link: Callable[[str], str] = lambda token: made.append(token) or "x"  # type: ignore[func-returns-value]  # noqa: E731
    values = {"email": "new@acme.example", "role": "developer", "can_export": False}
    invitation_create(Actor(chief), acme, **values, link=link)
    client = Client()
    answer = client.post(f"/invitations/{made[0]}/", {"password": "a much better one 42"})
    assert answer["Location"] == "/sign-in/second-factor/" and client.get("/jobs/").status_code == 302


def test_an_admin_removes_the_second_factor_of_a_person_who_lost_it(
    chief: Any, app: Authenticator, elsewhere: Organization
) -> None:
    theirs = Client()
    theirs.force_login(app.person)
    admin = Client()
    admin.force_login(chief)
    member = Membership.objects.get(user=app.person)
    assert "Remove the second factor of olivia" in admin.get("/people/").content.decode()
    # Of a person who belongs to others too, one organisation's admin may not.
    other = factories.MembershipFactory(organization=elsewhere, user=app.person, role=Role.STAKEHOLDER)
    assert admin.post(f"/people/{member.pk}/second-factor/remove/").status_code == 403
    other.delete()
    assert admin.post(f"/people/{member.pk}/second-factor/remove/").status_code == 302
    assert not SecondFactor.objects.exists() and theirs.get("/jobs/").status_code == 302
    assert AuditEvent.objects.get(action="second_factor.taken_off").actor == "chief"
    assert admin.post(f"/people/{member.pk}/second-factor/remove/").status_code == 409


def test_the_sites_operator_removes_a_second_factor_by_command(app: Authenticator) -> None:
    call_command("take_off_second_factor", user="olivia")
    assert password("olivia")[1]["Location"] == "/"
    with pytest.raises(CommandError, match="no second factor"):
        call_command("take_off_second_factor", user="olivia")


@pytest.mark.django_db(transaction=True)
def test_two_who_bring_one_code_at_once_are_one(app: Authenticator) -> None:
    code = app.code()

    def taken(_: int) -> bool:
        try:
            return code_taken(app.person, code)
        finally:
            connection.close()

    with ThreadPoolExecutor(6) as threads:
        assert sum(threads.map(taken, range(6))) == 1
