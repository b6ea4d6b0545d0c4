"""A person's sign-ins: each is listed with its place, and can be ended by itself."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from agentcore_site import retention
from agentcore_site.audit.models import AuditEvent
from agentcore_site.identity.sign_ins import SEEN, client_in_words
from agentcore_site.tenancy.models import BrowserSession, TokenFamily
from tests.factories import PASSWORD
from tests.support.callers import Caller
from tests.support.pages import html

pytestmark = pytest.mark.django_db

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
HOME, AWAY = "198.51.100.7", "203.0.113.9"


@pytest.fixture(autouse=True)
def fresh_cache() -> None:
    cache.clear()


def browser(name: str, address: str = HOME, agent: str = FIREFOX) -> Client:
    client = Client(REMOTE_ADDR=address, headers={"user-agent": agent})
    assert client.post("/sign-in/", {"username": name, "password": PASSWORD}).status_code == 302
    return client


def program(name: str) -> Caller:
    caller = Caller()
    credentials = {"username": name, "password": PASSWORD}
    given = caller.client.post(
        "/api/v1/token", credentials, "application/json", REMOTE_ADDR=AWAY, headers={"user-agent": "trainer/1.2"}
    )
    caller.headers = {"Authorization": f"Bearer {given.json()['access']}"}
    return caller


def test_the_page_names_each_place_and_which_one_asks(olivia: Any, dan: Any) -> None:
    here, _ = browser("olivia"), program("olivia")
    browser("dan", "192.0.2.55")
    shown = html(here.get("/account/"))
    assert "Firefox on Linux" in shown and HOME in shown and "this session" in shown
    assert "trainer" in shown and AWAY in shown and "tokens of a program" in shown
    assert "192.0.2.55" not in shown
    assert "/account/" in html(here.get("/"))


def test_one_is_ended_and_the_others_go_on(olivia: Any) -> None:
    here, there, tokens = browser("olivia"), browser("olivia", AWAY), program("olivia")
    listed = tokens.get("me/sessions").json()
    assert sorted(one["kind"] for one in listed) == ["browser", "browser", "program"]
    [far] = [one for one in listed if one["kind"] == "browser" and one["ip"] == AWAY]
    assert here.post(f"/account/sign-ins/{far['id']}/end/").status_code == 302
    assert [one.get("/jobs/").status_code for one in (here, there)] == [200, 302]
    [mine] = [one for one in listed if one["kind"] == "program"]
    assert tokens.delete(f"me/sessions/{mine['id']}").status_code == 204
    assert tokens.get("me").status_code == 401 and here.get("/jobs/").status_code == 200
    ended = AuditEvent.objects.filter(action="person.sign_in_ended", actor="olivia")
    assert sorted(one.after["kind"] for one in ended) == ["browser", "program"]


def test_a_person_ends_only_their_own_sign_ins_and_a_key_none(olivia: Any, charlie: Any) -> None:
    theirs = browser("olivia")
    of_program = program("olivia")
    for key in (BrowserSession.objects.get(user=olivia).pk, TokenFamily.objects.get(user=olivia).pk):
        assert browser("charlie").post(f"/account/sign-ins/{key}/end/").status_code == 404
        assert program("charlie").delete(f"me/sessions/{key}").status_code == 404
        assert Caller(olivia).delete(f"me/sessions/{key}").status_code == 403
    assert theirs.get("/jobs/").status_code == 200 and of_program.get("me").status_code == 200


def test_a_session_that_moves_shows_its_last_address(olivia: Any) -> None:
    here = browser("olivia")
    here.get("/jobs/", REMOTE_ADDR=AWAY)
    assert BrowserSession.objects.get().ip == HOME  # it is written down each few minutes
    session = here.session
    session[SEEN] = int(time.time()) - 400
    session.save()
    here.get("/jobs/", REMOTE_ADDR=AWAY)
    row = BrowserSession.objects.get()
    assert row.ip == AWAY and timezone.now() - row.used_at < timedelta(minutes=1)


def test_a_session_from_before_places_were_kept_is_listed_from_its_next_use_on(olivia: Any) -> None:
    here = browser("olivia")
    BrowserSession.objects.all().delete()
    session = here.session
    del session[SEEN]
    session.save()
    assert here.get("/jobs/").status_code == 200 and BrowserSession.objects.get().user == olivia


def test_ended_sign_ins_are_not_listed_and_are_deleted(olivia: Any) -> None:
    here = browser("olivia")
    browser("olivia", AWAY).post("/sign-out/")
    Session.objects.exclude(session_key=here.session.session_key).update(expire_date=timezone.now())
    assert AWAY not in html(here.get("/account/"))
    assert BrowserSession.objects.count() == 2
    retention.ended_sessions().delete()
    assert BrowserSession.objects.get().ip == HOME


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        (FIREFOX, "Firefox on Linux"),
        ("Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 Chrome/140.0 Safari/537.36 Edg/140.0", "Edge on Windows"),
        ("Mozilla/5.0 (Macintosh) AppleWebKit/605.1 Version/18.0 Safari/605.1", "Safari on a Mac"),
        ("Mozilla/5.0 (Linux; Android 16) AppleWebKit/537.36 Chrome/140.0 Mobile Safari/537.36", "Chrome on Android"),
        ("python-httpx/0.28.1", "python-httpx"),
        ("<script>alert(1)</script>", "a program"),
        ("", "a program"),
        ("Mozilla/5.0", "a program"),
    ],
)
def test_a_client_is_named_in_words(agent: str, words: str) -> None:
    assert client_in_words(agent, otherwise="a program") == words
