"""Signing in: wrong passwords are counted at every place that takes one, tokens end when their person wants them to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.cache import cache
from django.db import connection
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agentcore_site import env
from agentcore_site.audit.models import AuditEvent
from agentcore_site.rest.throttling import KeyThrottle
from agentcore_site.tenancy.addresses import client_address
from agentcore_site.tenancy.jwt_keys import RefreshToken
from agentcore_site.tenancy.models import Organization, TokenFamily
from agentcore_site.tenancy.sign_in import PER_ACCOUNT, PER_ADDRESS
from agentcore_site.tenancy.tokens import SAME_SUCCESSOR
from tests.factories import PASSWORD
from tests.support.callers import Caller

pytestmark = pytest.mark.django_db

HOME, AWAY = "198.51.100.7", "203.0.113.9"


@pytest.fixture(autouse=True)
def fresh_cache(settings: Any) -> None:
    cache.clear()
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # they check hundreds of passwords


Interface = Callable[..., Any]


def console(name: str, password: str, **meta: Any) -> Any:
    return Client().post("/sign-in/", {"username": name, "password": password}, **meta)


def admin(name: str, password: str, **meta: Any) -> Any:
    return Client().post("/admin/login/", {"username": name, "password": password}, **meta)


def token(name: str, password: str, **meta: Any) -> Any:
    given = {"username": name, "password": password}
    return Client().post("/api/v1/token", given, content_type="application/json", **meta)


INTERFACES = [console, admin, token]


# -- wrong passwords ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("interface", INTERFACES)
def test_an_account_is_guessed_ten_times_and_then_even_the_right_password_waits(
    interface: Interface, adam: Any
) -> None:
    for n in range(PER_ACCOUNT):
        assert interface("adam", "wrong", REMOTE_ADDR=f"203.0.113.{n}").status_code != 429
    for other in INTERFACES:
        refused = other("Adam" if other is token else "adam", PASSWORD, REMOTE_ADDR=AWAY)
        assert refused.status_code == 429 and refused["Retry-After"] == "900"
        assert "Too many wrong passwords. Wait 15 minutes" in refused.content.decode()


@pytest.mark.parametrize("interface", INTERFACES)
def test_an_address_has_thirty_failures_in_spite_of_forged_headers(interface: Interface, adam: Any) -> None:
    for n in range(PER_ADDRESS):
        made_up = {"HTTP_X_FORWARDED_FOR": f"192.0.2.{n}"}
        name = "adam" if n % 10 == 0 else f"person{n}"
        assert INTERFACES[n % 3](name, "wrong", REMOTE_ADDR=AWAY, **made_up).status_code != 429
    assert interface("adam", PASSWORD, REMOTE_ADDR=AWAY, HTTP_X_FORWARDED_FOR="192.0.2.99").status_code == 429
    assert interface("adam", PASSWORD, REMOTE_ADDR=HOME).status_code in {200, 302}
    assert set(AuditEvent.objects.filter(action="person.sign_in_failed").values_list("ip", flat=True)) == {AWAY}


def test_a_right_password_resets_the_count_of_the_account(olivia: Any) -> None:
    for _ in range(3):
        for _ in range(PER_ACCOUNT - 1):
            assert console("olivia", "wrong", REMOTE_ADDR=HOME).status_code == 400
        assert console("olivia", PASSWORD, REMOTE_ADDR=HOME).status_code == 302
        cache.delete(f"sign-in:address:{HOME}")


def test_strangers_who_use_up_the_tries_do_not_lock_a_person_out_at_home(olivia: Any) -> None:
    assert console("olivia", PASSWORD, REMOTE_ADDR=HOME).status_code == 302
    for n in range(PER_ACCOUNT + 2):
        console("olivia", "wrong", REMOTE_ADDR=f"203.0.113.{n}")
    assert console("olivia", PASSWORD, REMOTE_ADDR=AWAY).status_code == 429
    assert console("olivia", PASSWORD, REMOTE_ADDR=HOME).status_code == 302


def test_a_whole_network_of_ipv6_is_one_address(olivia: Any) -> None:
    for n in range(PER_ADDRESS):
        console(f"person{n}", "wrong", REMOTE_ADDR=f"2001:db8::{n:x}")
    assert console("olivia", PASSWORD, REMOTE_ADDR="2001:db8::ffff").status_code == 429


def test_with_redis_away_the_audit_log_is_counted(olivia: Any, settings: Any) -> None:
    backend = "django.core.cache.backends.redis.RedisCache"
    settings.CACHES = {"default": {"BACKEND": backend, "LOCATION": "redis://127.0.0.1:1/0"}}
    assert console("olivia", PASSWORD, REMOTE_ADDR=HOME).status_code == 302
    for n in range(PER_ACCOUNT):
        assert console("olivia", "wrong", REMOTE_ADDR=f"203.0.113.{n}").status_code == 400
    assert token("olivia", PASSWORD, REMOTE_ADDR=AWAY).status_code == 429
    assert console("olivia", PASSWORD, REMOTE_ADDR=HOME).status_code == 302


def test_a_sign_in_that_is_refused_writes_no_failure_and_checks_no_password(olivia: Any) -> None:
    for _ in range(PER_ACCOUNT + 5):
        console("olivia", "wrong", REMOTE_ADDR=AWAY)
    assert AuditEvent.objects.filter(action="person.sign_in_failed").count() == PER_ACCOUNT


# -- the address of a client -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("proxies", "remote", "forwarded", "seen"),
    [
        ("", "127.0.0.1", "192.0.2.1", "127.0.0.1"),
        ("10.0.0.0/8", "203.0.113.9", "192.0.2.1", "203.0.113.9"),
        ("10.0.0.0/8", "10.1.1.1", "192.0.2.1", "192.0.2.1"),
        ("10.0.0.0/8", "10.1.1.1", "192.0.2.66, 192.0.2.1", "192.0.2.1"),  # the first was made up by the client
        ("10.0.0.0/8", "10.1.1.1", "192.0.2.1, 10.2.2.2", "192.0.2.1"),
        ("10.0.0.0/8", "10.1.1.1", "nonsense", "10.1.1.1"),
        ("10.0.0.0/8", "10.1.1.1", "", "10.1.1.1"),
        ("::1,10.0.0.1", "::ffff:10.0.0.1", "2001:db8::1", "2001:db8::1"),
        ("", "", "192.0.2.1", ""),
    ],
)
def test_only_trusted_proxies_say_where_a_request_comes_from(
    proxies: str, remote: str, forwarded: str, seen: str, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    monkeypatch.setenv("TRUSTED_PROXIES", proxies)
    settings.TRUSTED_PROXIES = env.networks("TRUSTED_PROXIES")
    request = RequestFactory().get("/", REMOTE_ADDR=remote, HTTP_X_FORWARDED_FOR=forwarded)
    assert client_address(request) == seen
    assert KeyThrottle().get_ident(request) == seen


def test_proxies_that_are_no_networks_are_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUSTED_PROXIES", "10.0.0.0/8,proxy")
    with pytest.raises(env.BadEnvironment, match="TRUSTED_PROXIES"):
        env.networks("TRUSTED_PROXIES")


# -- tokens ------------------------------------------------------------------------------------------------------------


def tokens(name: str = "olivia", **extra: str) -> dict[str, str]:
    answer = Caller().post("token", {"username": name, "password": PASSWORD, **extra})
    assert answer.status_code == 200, answer.content
    body: dict[str, str] = answer.json()
    return body


def status_of(access: str, path: str = "me") -> int:
    caller = Caller()
    caller.headers = {"Authorization": f"Bearer {access}"}
    return int(caller.get(path).status_code)


def refresh(raw: str) -> Any:
    return Caller().post("token/refresh", {"refresh": raw})


def test_tokens_end_with_a_changed_password(olivia: Any) -> None:
    given = tokens()
    assert status_of(given["access"]) == 200
    olivia.set_password("quite another one")
    olivia.save()
    assert status_of(given["access"]) == 401 and refresh(given["refresh"]).status_code == 401


def test_tokens_end_with_a_disabled_account(olivia: Any) -> None:
    given = tokens()
    get_user_model().objects.filter(pk=olivia.pk).update(is_active=False)
    assert status_of(given["access"]) == 401 and refresh(given["refresh"]).status_code == 401


def test_a_refresh_token_is_valid_once_and_a_second_use_ends_the_family(olivia: Any) -> None:
    first, other = tokens(scope="training:view"), tokens()
    second = refresh(first["refresh"]).json()
    third = refresh(second["refresh"]).json()
    TokenFamily.objects.update(renewed_at=timezone.now() - SAME_SUCCESSOR)
    assert status_of(third["access"]) == 200
    assert status_of(third["access"], "api-keys") == 200
    assert refresh(second["refresh"]).status_code == 401
    assert refresh(third["refresh"]).status_code == 401 and status_of(third["access"]) == 401
    assert status_of(other["access"]) == 200
    assert AuditEvent.objects.filter(action="person.token_reused", actor="olivia").count() == 1


def test_two_threads_that_refresh_one_token_at_once_get_the_same_successor(olivia: Any) -> None:
    given = tokens()
    one, other = refresh(given["refresh"]).json(), refresh(given["refresh"]).json()
    named, again = RefreshToken(one["refresh"]), RefreshToken(other["refresh"])
    assert named["jti"] == again["jti"] and named["exp"] == again["exp"]
    assert [status_of(pair["access"]) for pair in (one, other)] == [200, 200]
    assert refresh(other["refresh"]).status_code == 200
    # One that is older than that is a copy, however soon it comes.
    assert refresh(given["refresh"]).status_code == 401 and status_of(one["access"]) == 401


def test_a_narrowed_token_stays_narrow_after_its_renewal(olivia: Any) -> None:
    renewed = refresh(tokens(scope="training:view")["refresh"]).json()
    caller = Caller()
    caller.headers = {"Authorization": f"Bearer {renewed['access']}"}
    assert caller.get("me").json()["scopes"] == ["training:view"]
    assert caller.post("me/sign-out-everywhere").status_code == 403


def test_signing_out_ends_access_and_refresh_at_once(olivia: Any) -> None:
    given, other = tokens(), tokens()
    assert Caller().post("token/revoke", {"refresh": given["refresh"]}).status_code == 204
    assert status_of(given["access"]) == 401 and refresh(given["refresh"]).status_code == 401
    assert Caller().post("token/revoke", {"refresh": given["refresh"]}).status_code == 204
    assert Caller().post("token/revoke", {"refresh": "nonsense"}).status_code == 401
    assert status_of(other["access"]) == 200


def test_signing_out_everywhere_ends_only_the_persons_sessions_and_tokens(olivia: Any, dan: Any) -> None:
    given, others = tokens(), tokens("dan")
    browsers = [Client(), Client(), Client()]
    for browser, person in zip(browsers, (olivia, olivia, dan), strict=True):
        browser.force_login(person)
    assert "Sign out everywhere" in browsers[0].get("/").content.decode()
    assert browsers[0].post("/sign-out/everywhere/")["Location"] == "/sign-in/"
    assert [browser.get("/jobs/").status_code for browser in browsers] == [302, 302, 200]
    assert status_of(given["access"]) == 401 and refresh(given["refresh"]).status_code == 401
    assert status_of(others["access"]) == 200
    event = AuditEvent.objects.get(action="person.signed_out_everywhere")
    assert event.actor == "olivia" and event.after == {"sessions": 2, "tokens": 1}


def test_signing_out_everywhere_works_over_rest(olivia: Any) -> None:
    given = tokens()
    caller = Caller()
    caller.headers = {"Authorization": f"Bearer {given['access']}"}
    assert caller.post("me/sign-out-everywhere").status_code == 204
    assert status_of(given["access"]) == 401
    assert Caller(olivia).post("me/sign-out-everywhere").status_code == 403


def test_a_sign_in_of_a_program_is_logged_with_its_address(olivia: Any, acme: Organization) -> None:
    token("olivia", PASSWORD, REMOTE_ADDR=AWAY)
    event = AuditEvent.objects.get(action="person.signed_in")
    assert (event.actor, event.ip, event.door, event.organization_id) == ("olivia", AWAY, "jwt", acme.id)


def test_a_token_costs_no_query_more_than_a_person(olivia: Any) -> None:
    given = tokens()
    with CaptureQueriesContext(connection) as asked:
        assert status_of(given["access"]) == 200
    assert len([one for one in asked if "auth_user" in one["sql"] or "tokenfamily" in one["sql"]]) == 1


def test_a_token_without_a_family_is_refused(olivia: Any) -> None:
    given = tokens()
    TokenFamily.objects.all().delete()
    assert status_of(given["access"]) == 401 and refresh(given["refresh"]).status_code == 401
