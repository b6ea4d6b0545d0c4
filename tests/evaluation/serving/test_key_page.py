"""Keys that people make in the console, and keys that open from some addresses only, at every interface."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from channels.db import database_sync_to_async
from django.test import Client
from django.utils import timezone

from agentcore_site.audit.models import AuditEvent
from agentcore_site.jobs import consumers
from agentcore_site.jobs.models import Job
from agentcore_site.lib.errors import Invalid
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.addresses import lies_in, networks, socket_address
from agentcore_site.tenancy.authentication import actor_of_key
from agentcore_site.tenancy.models import ApiKey, Organization
from agentcore_site.tenancy.roles import SCOPE_TITLES, SCOPES, SERVICE
from agentcore_site.tenancy.services import MOST_ADDRESSES, api_key_create
from experiences.models import Agent
from tests.evaluation.serving.production import production
from tests.support.llm_server import ModelServer
from tests.support.pages import html
from tests.support.playbooks import PRICE
from tests.support.sockets import Socket
from tests.support.workers import Fleet

pytestmark = pytest.mark.django_db
HERE, ELSEWHERE = "127.0.0.0/8", "192.0.2.0/24"
GIVEN = {"name": "CI", "scopes": ["training:view", "training:start"], "days": "30"}


def at_desk(person: Any) -> Client:
    client = Client()
    client.force_login(person)
    return client


def test_a_key_is_made_in_the_console_shown_once_and_revoked(olivia: Any, acme: Organization) -> None:
    desk = at_desk(olivia)
    made = desk.post("/keys/", GIVEN | {"addresses": "192.0.2.7\n10.0.0.0/8"})
    assert made.status_code == 200 and "no-store" in made["Cache-Control"]
    [key] = re.findall(r'value="(ac_[^"]+)"', html(made))
    row = ApiKey.objects.get()
    assert (row.name, row.user, row.organization) == ("CI", olivia, acme)
    assert row.scopes == ["training:start", "training:view"] and row.addresses == ["192.0.2.7", "10.0.0.0/8"]
    assert timedelta(days=29) < row.expires_at - timezone.now() <= timedelta(days=30)
    shown = html(desk.get("/keys/"))
    assert key not in shown and row.prefix in shown and "from 192.0.2.7, 10.0.0.0/8" in shown
    assert actor_of_key(key, ip="10.1.2.3") and actor_of_key(key, ip="192.0.2.8") is None
    assert AuditEvent.objects.get(action="api_key.created").after["addresses"] == ["192.0.2.7", "10.0.0.0/8"]
    assert desk.post(f"/keys/{row.pk}/revoke/").status_code == 302
    ended = html(desk.get("/keys/"))
    assert actor_of_key(key, ip="10.1.2.3") is None and "revoked" in ended and 'placeholder="Search keys"' in ended


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"addresses": "somewhere"}, "addresses"),
        ({"days": "0"}, "days"),
        ({"scopes": []}, "scopes"),
        ({"monthly_usd": "5"}, "monthly_usd"),  # of no use without calls
        ({"per_minute": "-1"}, "per_minute"),
    ],
)
def test_typed_values_stay_beside_their_errors(olivia: Any, wrong: dict[str, Any], field: str) -> None:
    page = at_desk(olivia).post("/keys/", GIVEN | wrong)
    assert page.status_code == 400 and f'id="id_{field}-wrong"' in html(page) and 'value="CI"' in html(page)
    assert not ApiKey.objects.exists()


def test_a_form_offers_what_its_reader_may_give(olivia: Any, stella: Any, adam: Any) -> None:
    def offered(person: Any) -> set[str]:
        return set(re.findall(r'name="scopes" value="([^"]+)"', html(at_desk(person).get("/keys/"))))

    assert offered(stella) == {"training:view", SERVICE}
    assert "training:manage" in offered(adam) and "training:start" in offered(olivia)
    assert SCOPES.keys() == SCOPE_TITLES.keys()


def test_of_others_keys_only_who_manages_them_sees_and_revokes(
    olivia: Any, adam: Any, stella: Any, charlie: Any
) -> None:
    row, _ = api_key_create(Actor(olivia), name="hers", scopes=["training:view"])
    for person, code in ((stella, 404), (charlie, 404), (adam, 302)):
        assert ("hers" in html(at_desk(person).get("/keys/"))) is (code == 302)
        assert at_desk(person).post(f"/keys/{row.pk}/revoke/").status_code == code
    assert not ApiKey.objects.get().alive


def test_rest_and_rpc_open_to_its_addresses_alone(operator: Actor, client: Any) -> None:
    _, key = api_key_create(operator, name="k", scopes=["training:view"], addresses=[ELSEWHERE])

    def status(address: str, **headers: str) -> list[int]:
        sent = {"authorization": f"Bearer {key}", **headers}
        call = {"jsonrpc": "2.0", "method": "training.list_jobs", "id": 1}
        answers = (
            client.get("/api/v1/me", headers=sent, REMOTE_ADDR=address),
            client.post("/api/v1/jsonrpc", call, "application/json", headers=sent, REMOTE_ADDR=address),
        )
        return [answer.status_code for answer in answers]

    assert status("192.0.2.7") == [200, 200]
    assert status("198.51.100.7") == [401, 401]
    assert status("198.51.100.7", **{"x-forwarded-for": "192.0.2.7"}) == [401, 401]  # anybody may write that


@pytest.mark.django_db(transaction=True)
async def test_a_socket_opens_to_its_addresses_alone(operator: Actor, acme: Organization, olivia: Any) -> None:
    job = await database_sync_to_async(Job.objects.create)(organization=acme, kind="test", title="t", created_by=olivia)
    for places, opens in (([HERE], True), ([ELSEWHERE], False)):
        make = database_sync_to_async(api_key_create)
        _, key = await make(operator, name="k", scopes=["training:view"], addresses=places)
        one = Socket(f"/ws/jobs/{job.id}/", authorization=f"Bearer {key}")
        await one.connect()
        if opens:
            await one.disconnect()
        else:
            assert await one.closed() == consumers.GONE


def test_the_fast_path_of_contexts_leaves_such_a_key_to_the_ordinary_one(operator: Actor, agent: Agent) -> None:
    from experiences.playbooks.ace.context_cache import caller_of

    _, everywhere = api_key_create(operator, name="k", scopes=[SERVICE])
    _, here = api_key_create(operator, name="k", scopes=[SERVICE], addresses=[HERE])
    assert caller_of(everywhere) is not None and caller_of(here) is None


@pytest.mark.django_db(transaction=True)
def test_the_gateway_opens_to_its_addresses_alone(fleet: Fleet, adam: Any, acme: Organization, journal: str) -> None:
    with ModelServer(prices={"small": PRICE}) as server:
        shop = production(fleet, Actor(adam), server, acme, GATEWAY_JOURNAL=journal)
        for places, code in (([HERE], 200), ([ELSEWHERE], 401), ([ELSEWHERE, "127.0.0.1"], 200)):
            _, key = api_key_create(Actor(adam), name="k", scopes=["gateway:call"], addresses=places)
            result = shop.ask(headers={"authorization": f"Bearer {key}"})
            assert result.status_code == code, result.text


def test_addresses_are_checked_and_a_key_that_makes_keys_has_none(operator: Actor, adam: Any) -> None:
    assert networks([" 10.1.2.3/8 ", "192.0.2.7/32", "", "2001:db8::/32", "10.0.0.0/8"]) == [
        "10.0.0.0/8",
        "192.0.2.7",
        "2001:db8::/32",
    ]
    many = [f"10.0.0.{n}" for n in range(MOST_ADDRESSES + 1)]
    for wrong in (["localhost"], ["10.0.0.0/33"], many):
        with pytest.raises(Invalid, match="addresses"):
            api_key_create(operator, name="k", scopes=["training:view"], addresses=wrong)
    with pytest.raises(Invalid, match="could make one without"):
        api_key_create(Actor(adam), name="k", scopes=["training:manage"], addresses=[HERE])


def test_an_address_that_is_not_known_lies_in_none() -> None:
    assert lies_in("::ffff:10.0.0.1", ["10.0.0.0/8"]) and lies_in("2001:db8::7", ["2001:db8::/32"])
    assert not any(lies_in(one, ["0.0.0.0/0", "::/0"]) for one in ("", "unix", "10.0.0.1.5"))
    assert socket_address({"headers": [], "client": None}) == ""
