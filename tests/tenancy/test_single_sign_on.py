"""Single sign-on: who comes in by the provider, as whom, with which roles; and what is refused."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from django.contrib.auth import get_user_model
from django.core.cache import cache
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.test import Client

from agentcore_site import env
from agentcore_site.audit.models import AuditEvent
from agentcore_site.identity.invitations import invitation_create
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Mail, Membership, Organization, ProviderAccount
from tests.factories import PASSWORD, UserFactory
from tests.support.callers import Caller
from tests.support.oidc_provider import CLIENT, SECRET, Provider, provider_running
from tests.support.pages import html
from tests.tenancy.test_second_factor import Authenticator

pytestmark = pytest.mark.django_db


@pytest.fixture
def provider(settings: Any, acme: Organization) -> Iterator[Provider]:
    cache.clear()
    with provider_running() as running:
        settings.OUTBOUND_ALLOW = ("127.0.0.1",)
        settings.OIDC_ISSUER, settings.OIDC_NAME = running.issuer, "Acme Directory"
        settings.OIDC_CLIENT_ID, settings.OIDC_CLIENT_SECRET = CLIENT, SECRET
        settings.OIDC_ORGANIZATION = "acme"
        running.person = {"sub": "u-1", "email": "nora@acme.example", "email_verified": True}
        yield running


def signed_on(client: Client | None = None, **query: str) -> tuple[Client, Any]:
    """The steps of a browser: to the provider and back."""
    client = client or Client()
    there = client.get("/sign-in/provider/", query)
    assert there.status_code == 302, there.content
    back = httpx.get(there["Location"], trust_env=False)
    parts = urlsplit(back.headers["location"])
    assert f"{parts.scheme}://{parts.netloc}{parts.path}" == "http://testserver/sign-in/provider/back/"
    return client, client.get(f"{parts.path}?{parts.query}")


def refused(answer: Any, why: str) -> None:
    assert answer.status_code == 403 and why in html(answer), answer.content.decode()
    assert not get_user_model().objects.filter(email="nora@acme.example").exists()
    assert AuditEvent.objects.filter(action="person.sign_in_failed", door="single sign-on").count() == 1
    assert not AuditEvent.objects.filter(action="person.signed_in").exists()


# -- success -----------------------------------------------------------------------------------------------------------


def test_a_new_person_becomes_a_member_and_is_the_same_one_next_time(provider: Provider, acme: Organization) -> None:
    assert "Sign in by Acme Directory" in html(Client().get("/sign-in/"))
    client, answer = signed_on(next="/agents/")
    assert answer["Location"] == "/agents/" and client.get("/jobs/").status_code == 200
    person = get_user_model().objects.get(email="nora@acme.example")
    assert not person.has_usable_password()
    assert Membership.objects.get(user=person).role == "stakeholder"
    # At the provider the address was given away, the subject was not.
    provider.person["email"] = "nora.new@acme.example"
    client, _ = signed_on()
    assert client.session["_auth_user_id"] == str(person.pk)
    signed = AuditEvent.objects.filter(action="person.signed_in", door="single sign-on", actor=person.username)
    assert signed.count() == 2
    assert provider.asked[0]["nonce"] != provider.asked[1]["nonce"]


def test_an_account_is_found_by_its_verified_address(provider: Provider, olivia: Any) -> None:
    get_user_model().objects.filter(pk=olivia.pk).update(email="Nora@Acme.example")
    client, _ = signed_on()
    assert client.session["_auth_user_id"] == str(olivia.pk)
    assert Membership.objects.get(user=olivia).role == "operator"  # without a mapping roles are given here


def test_address_and_groups_may_be_in_userinfo_alone(provider: Provider, settings: Any) -> None:
    settings.OIDC_GROUPS = [("engineers", "acme", "developer")]
    provider.beside = {"email": "nora@acme.example", "email_verified": True, "groups": ["engineers"]}
    provider.person = {"sub": "u-1"}
    signed_on()
    assert Membership.objects.get(user__email="nora@acme.example").role == "developer"


def test_a_key_that_the_provider_changed_is_known_at_once(provider: Provider) -> None:
    signed_on()
    provider.rotate()
    assert signed_on()[1].status_code == 302


def test_sign_on_leads_nowhere_else_afterwards(provider: Provider) -> None:
    assert signed_on(next="https://evil.example/")[1]["Location"] == "/"


# -- roles by groups ---------------------------------------------------------------------------------------------------


def test_groups_give_and_take_roles_at_each_sign_in(
    provider: Provider, settings: Any, acme: Organization, elsewhere: Organization
) -> None:
    settings.OIDC_GROUPS = [
        ("engineers", "acme", "developer"),
        ("leads", "acme", "admin"),
        ("guests", "elsewhere", "stakeholder"),
    ]

    def roles(*groups: str) -> dict[str, str]:
        provider.person["groups"] = list(groups)
        signed_on()
        rows = Membership.objects.filter(user__email="nora@acme.example")
        return {row.organization.slug: row.role for row in rows}

    assert roles("engineers", "others") == {"acme": "developer"}
    assert roles("engineers", "leads", "guests") == {"acme": "admin", "elsewhere": "stakeholder"}
    assert roles("guests") == {"elsewhere": "stakeholder"}
    client, answer = Client(), None
    provider.person["groups"] = []
    client, answer = signed_on()
    assert answer.status_code == 403 and "None of your groups" in html(answer)
    assert client.get("/jobs/").status_code == 302 and not Membership.objects.exists()
    log = AuditEvent.objects.filter(action__startswith="membership.", door="single sign-on").order_by("id")
    assert sorted(one.action for one in log) == [
        "membership.changed",
        "membership.created",
        "membership.created",
        "membership.deleted",
        "membership.deleted",
    ]


def test_an_organisation_outside_of_the_mapping_is_left_alone(
    provider: Provider, settings: Any, charlie: Any, acme: Organization
) -> None:
    settings.OIDC_GROUPS = [("engineers", "acme", "developer")]
    get_user_model().objects.filter(pk=charlie.pk).update(email="nora@acme.example")
    provider.person["groups"] = ["engineers"]
    signed_on()
    assert {one.organization.slug: one.role for one in Membership.objects.filter(user=charlie)} == {
        "acme": "developer",
        "elsewhere": "operator",
    }


# -- refused -----------------------------------------------------------------------------------------------------------


def test_an_answer_with_another_state_is_refused_and_the_right_one_is_good_once(provider: Provider) -> None:
    client = Client()
    there = client.get("/sign-in/provider/")
    back = urlsplit(httpx.get(there["Location"], trust_env=False).headers["location"])
    query = {name: values[0] for name, values in parse_qs(back.query).items()}
    refused(client.get(back.path, query | {"state": "another"}), "belongs to no open sign-in")
    # The attempt is over, also for the right one; and no other browser can bring it.
    assert client.get(back.path, query).status_code == 403
    assert Client().get(back.path, query).status_code == 403


def test_a_code_is_taken_by_the_provider_once(provider: Provider) -> None:
    client = Client()
    there = client.get("/sign-in/provider/")
    back = urlsplit(httpx.get(there["Location"], trust_env=False).headers["location"])
    provider.codes.clear()
    refused(client.get(f"{back.path}?{back.query}"), "does not take this sign-in any more")


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"nonce": "of another sign-in"}, "belongs to another sign-in"),
        ({"nonce": None}, "belongs to another sign-in"),
        ({"exp": int(time.time()) - 3600}, "too old"),
        ({"aud": "another-site"}, "for another site"),
        ({"aud": [CLIENT, "another-site"], "azp": "another-site"}, "for another site"),
        ({"iss": "https://another.example"}, "be verified"),
        ({"email_verified": False}, "does not vouch"),
        ({"email_verified": "true"}, "does not vouch"),
        ({"email": ""}, "does not vouch"),
    ],
)
def test_the_claims_of_the_token_are_checked(claims: dict[str, Any], why: str, provider: Provider) -> None:
    provider.token = claims
    refused(signed_on()[1], why)


def test_a_token_of_a_key_that_is_not_published_is_refused(provider: Provider, monkeypatch: Any) -> None:
    published = provider.keys
    provider.rotate()
    provider.kid = published["keys"][0]["kid"]  # by the right name
    monkeypatch.setattr(Provider, "keys", published)
    refused(signed_on()[1], "be verified")


def test_an_answer_of_another_provider_is_refused(provider: Provider) -> None:
    provider.answer = {"iss": "https://another.example"}
    refused(signed_on()[1], "another provider")


def test_a_person_who_declines_sees_a_message(provider: Provider) -> None:
    provider.answer = {"error": "access_denied"}
    refused(signed_on()[1], "did not sign you in")


def test_a_superuser_is_not_taken_over_by_an_address(provider: Provider, adam: Any) -> None:
    get_user_model().objects.filter(pk=adam.pk).update(email="nora@acme.example")
    client, answer = signed_on()
    assert answer.status_code == 403 and "Superusers sign in by password" in html(answer)
    assert client.get("/jobs/").status_code == 302 and not ProviderAccount.objects.exists()


def test_a_disabled_or_ambiguous_account_stays_out(provider: Provider, olivia: Any) -> None:
    get_user_model().objects.filter(pk=olivia.pk).update(email="nora@acme.example", is_active=False)
    assert "switched off" in html(signed_on()[1])
    UserFactory(username="other", email="nora@acme.example")
    assert "Several accounts" in html(signed_on()[1])


def test_a_provider_that_is_away_gives_a_page_that_says_so(provider: Provider, settings: Any) -> None:
    client = Client()
    there = client.get("/sign-in/provider/")
    back = urlsplit(httpx.get(there["Location"], trust_env=False).headers["location"])
    settings.OIDC_ISSUER = "http://127.0.0.1:1"
    for answer in (client.get("/sign-in/provider/"), client.get(f"{back.path}?{back.query}")):
        assert answer.status_code == 503 and "be asked right now" in html(answer)
    provider.described = {"issuer": "https://another.example"}
    settings.OIDC_ISSUER = provider.issuer
    assert "another issuer" in html(Client().get("/sign-in/provider/"))


def test_the_guard_of_outbound_calls_is_asked(provider: Provider, settings: Any) -> None:
    settings.OUTBOUND_ALLOW = ()
    answer = Client().get("/sign-in/provider/")
    assert answer.status_code == 503 and "private network" in html(answer)


def test_without_a_provider_there_is_no_way_in(acme: Organization) -> None:
    assert Client().get("/sign-in/provider/").status_code == 404
    assert Client().get("/sign-in/provider/back/").status_code == 404
    assert "/sign-in/provider/" not in html(Client().get("/sign-in/"))


# -- passwords off -----------------------------------------------------------------------------------------------------


def test_passwords_are_off_for_its_people_but_not_for_superusers_and_others(
    provider: Provider, settings: Any, olivia: Any, adam: Any, charlie: Any
) -> None:
    settings.OIDC_ONLY = True
    olivia.email = "olivia@acme.example"
    olivia.save()

    def status(name: str, path: str = "/sign-in/") -> int:
        return int(Client().post(path, {"username": name, "password": PASSWORD}).status_code)

    assert [status(name) for name in ("olivia", "adam", "charlie")] == [403, 302, 302]
    assert status("olivia", "/admin/login/") == 403
    assert Caller().post("token", {"username": "olivia", "password": PASSWORD}).status_code == 403
    Client().post("/password/forgotten/", {"name": "olivia@acme.example"})
    assert not Mail.objects.exists()


def test_an_invitation_makes_no_account_with_a_password_there(
    provider: Provider, settings: Any, acme: Organization, adam: Any
) -> None:
    settings.OIDC_ONLY = True
    made: list[str] = []

    def link(token: str) -> str:
        made.append(token)
        return "x"

    invitation_create(Actor(adam), acme, email="new@acme.example", role="developer", link=link)
    assert "/sign-in/provider/?next=/invitations/" in Client().get(f"/invitations/{made[0]}/").content.decode()
    answer = Client().post(f"/invitations/{made[0]}/", {"password": "a much better one 42"})
    assert answer.status_code == 409 and "Acme Directory" in html(answer)
    assert not get_user_model().objects.filter(email="new@acme.example").exists()


def test_a_mapping_that_is_none_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    roles = ("developer", "admin")
    monkeypatch.setenv("OIDC_GROUPS", "cn=eng=acme:developer, leads=acme:admin")
    assert env.group_roles("OIDC_GROUPS", roles) == [("cn=eng", "acme", "developer"), ("leads", "acme", "admin")]
    for wrong in ("engineers", "engineers=acme", "engineers=acme:boss", "=acme:admin"):
        monkeypatch.setenv("OIDC_GROUPS", wrong)
        with pytest.raises(env.BadEnvironment, match="OIDC_GROUPS"):
            env.group_roles("OIDC_GROUPS", roles)


# -- the second factor -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amr", "trusted", "asked"),
    [
        (None, False, True),
        (["pwd"], False, True),
        (["pwd", "kba"], False, True),  # twice what one knows
        ("mfa", False, True),  # no list: not as RFC 8176 has it
        (["mfa"], False, False),
        (["pwd", "otp"], False, False),
        (None, True, False),
    ],
)
def test_an_organisation_that_asks_for_a_second_factor_gets_one_that_the_provider_did_not_ask_for(
    provider: Provider, settings: Any, acme: Organization, amr: Any, trusted: bool, asked: bool
) -> None:
    signed_on()  # before it asked for one
    Organization.objects.filter(pk=acme.pk).update(second_factor=True)
    settings.OIDC_SECOND_FACTOR = trusted
    provider.person |= {} if amr is None else {"amr": amr}
    client, answer = signed_on(next="/agents/")
    assert answer["Location"] == ("/sign-in/second-factor/" if asked else "/agents/")
    assert (client.get("/jobs/").status_code == 302) is asked


def test_the_code_after_the_provider_lets_in(provider: Provider, acme: Organization) -> None:
    signed_on()
    person = get_user_model().objects.get(email="nora@acme.example")
    app = Authenticator(person)
    Organization.objects.filter(pk=acme.pk).update(second_factor=True)
    client, answer = signed_on(next="/agents/")
    assert answer["Location"] == "/sign-in/code/"
    assert client.post("/sign-in/code/", {"code": app.wrong()}).status_code == 400
    assert client.post("/sign-in/code/", {"code": app.code()})["Location"] == "/agents/"
    assert client.get("/jobs/").status_code == 200


def test_a_start_with_an_organisation_that_is_not_there_is_refused_with_the_reason(
    settings: Any, acme: Organization
) -> None:
    settings.OIDC_GROUPS = [("leads", "acme", "admin"), ("engineers", "acne", "developer")]
    with pytest.raises(SystemCheckError, match="acne"):
        call_command("check", databases=["default"])
    call_command("check")  # what asks no database
    settings.OIDC_GROUPS = [("leads", "acme", "admin")]
    call_command("check", databases=["default"])


def test_a_group_of_a_missing_organisation_does_not_stop_the_first_start(settings: Any) -> None:
    settings.OIDC_GROUPS = [("leads", "not-yet", "admin")]
    assert not Organization.objects.exists()
    call_command("check", databases=["default"])
