"""Keys of programs that call models: how often they may, what they may spend, and what they spent."""

from __future__ import annotations

import asyncio
import io
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone
from redis import Redis

from agentcore_site.lib.errors import Invalid
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import ApiKey, Organization
from agentcore_site.tenancy.services import api_key_create
from budgets.ledger.accounts import month_of
from budgets.models import BudgetSettings
from evaluation.serving.gateway.calls import Calls
from evaluation.serving.gateway.endpoint_calls import EndpointCalls
from evaluation.serving.gateway.key_limits import WRITING, KeyHolds, KeyRates, RecentSpending
from evaluation.serving.keys.selectors import key_spent_micros
from evaluation.serving.models import ArmName, KeySpending, ProductionTrace
from evaluation.serving.traces.writing import traces_write
from tests.evaluation.serving.production import production
from tests.support.callers import Caller
from tests.support.llm_server import ModelServer
from tests.support.pages import html
from tests.support.playbooks import PRICE
from tests.support.workers import Fleet, eventually

CALLS = ["gateway:call"]


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(prices={"small": PRICE}) as running:
        yield running


@pytest.mark.django_db(transaction=True)
def test_calls_beyond_the_dollars_a_minute_of_their_organisation_get_the_time_of_the_next_try(
    fleet: Fleet, adam: Any, acme: Organization, server: ModelServer, journal: str
) -> None:
    shop = production(fleet, Actor(adam), server, acme, GATEWAY_JOURNAL=journal)
    BudgetSettings.objects.create(organization=acme, most_per_minute_micros=1)
    assert shop.ask().status_code == 200  # dearer than a minute, which was empty
    refused = shop.ask()
    assert refused.status_code == 429 and int(refused.headers["retry-after"]) > 60, refused.text
    assert "may spend $0.000001 a minute" in refused.text and len(server.requests) == 1


@pytest.mark.django_db(transaction=True)
def test_the_gateway_keeps_a_key_to_its_rate_and_to_its_months_budget(
    fleet: Fleet, adam: Any, acme: Organization, server: ModelServer, journal: str
) -> None:
    shop = production(fleet, Actor(adam), server, acme, GATEWAY_JOURNAL=journal)
    _, often = api_key_create(Actor(adam), name="often", scopes=CALLS, per_minute=3)
    poor, dear = api_key_create(Actor(adam), name="dear", scopes=CALLS, monthly_micros=1)

    def asked(key: str) -> Any:
        return shop.ask(headers={"authorization": f"Bearer {key}"})

    answers = [asked(often) for _ in range(5)]
    assert [one.status_code for one in answers] == [200, 200, 200, 429, 429]
    refused = answers[-1]
    # Two refusals moved nothing on: the next turn is where the three calls left it, a third of a minute after them.
    assert 10 <= int(refused.headers["retry-after"]) <= 20
    assert refused.json()["error"]["type"] == "rate_limit_error" and "3 calls a minute" in refused.text

    assert asked(dear).status_code == 200
    refused = asked(dear)  # the database may not have the first one yet
    assert refused.status_code == 402 and refused.json()["error"]["code"] == "insufficient_quota"
    eventually(lambda: key_spent_micros(poor.pk) > 0, seconds=20, why="the counted spending of a key")
    # A refused call reached no model and left no trace; other keys go on.
    assert asked(shop.key).status_code == 200
    assert len(server.requests) == 5
    shop.traces(5)
    assert sum(KeySpending.objects.values_list("spent_micros", flat=True)) == server.owed.micros
    assert key_spent_micros(poor.pk) == ProductionTrace.objects.get(key_id=poor.pk).cost_micros


async def test_processes_share_a_rate_and_each_keeps_the_rate_alone_while_redis_is_away(
    broker: Redis, settings: Any
) -> None:
    settings.REDIS_TIMEOUTS = {"socket_timeout": 30, "socket_connect_timeout": 30}
    one, other, key = KeyRates(), KeyRates(), uuid.uuid4()
    waits = [await rates.turn(key, 7) for _ in range(4) for rates in (one, other)]
    assert waits[:7] == [0] * 7 and 0 < waits[7] <= 60 / 7
    assert 0 < float(broker.ttl(f"agentcore:key-rate:{key}")) <= 61
    assert await other.turn(uuid.uuid4(), 1) == 0  # another key's turn
    await one.aclose()
    await other.aclose()
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    alone = KeyRates()
    waits = [await alone.turn(key, 2) for _ in range(4)]
    assert waits[:2] == [0, 0] and 0 < waits[2] <= 30 and waits[3] <= waits[2]


async def test_calls_under_way_count_at_their_worst_case_in_all_processes(broker: Redis, settings: Any) -> None:
    settings.REDIS_TIMEOUTS = {"socket_timeout": 30, "socket_connect_timeout": 30}  # a busy machine is not its loss
    one, other, key = KeyHolds(), KeyHolds(), uuid.uuid4()
    calls = [uuid.uuid4() for _ in range(64)]
    now = time.monotonic()

    async def take(holds: KeyHolds, call: uuid.UUID, *, room: int = 10_000, read_at: float = now) -> bool:
        return await holds.take(key, call, 2_000, room_micros=room, read_at=read_at)

    taken = await asyncio.gather(*(take((one, other)[at % 2], call) for at, call in enumerate(calls)))
    assert sum(taken) == 5  # of sixty-four at once, as many as the month pays at their worst
    first, *_ = (call for call, yes in zip(calls, taken, strict=True) if yes)
    await (one, other)[calls.index(first) % 2].end(key, first, 500)
    assert not await take(one, uuid.uuid4(), room=8_500) and await take(other, uuid.uuid4(), room=8_501)
    # A read that began long after the end has the cost already.
    later = time.monotonic() + WRITING
    assert await take(one, uuid.uuid4(), room=10_001, read_at=later)
    for name in (f"agentcore:{{{key}}}:held", f"agentcore:{{{key}}}:ended"):
        assert 0 < float(broker.ttl(name)) <= 901
    await one.aclose()
    await other.aclose()
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    alone, more = KeyHolds(), [uuid.uuid4() for _ in range(8)]
    assert [await alone.take(key, call, 2_000, room_micros=5_000, read_at=now) for call in more[:4]] == [
        True, True, True, False,
    ]  # fmt: skip
    await alone.end(key, more[0], 1)
    assert await alone.take(key, more[5], 2_000, room_micros=5_000, read_at=now)


@pytest.mark.parametrize("long", [True, False])
async def test_a_long_conversation_is_redacted_beside_the_loop(long: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, redacted, loop = Calls.__new__(Calls), [], threading.get_ident()
    content = mock.Mock(request={}, response={}, safety=None, whole=False)
    monkeypatch.setattr(
        "evaluation.serving.gateway.calls.kept", lambda *_: redacted.append(threading.get_ident()) or content
    )
    calls._payers, calls._ends = mock.Mock(**{"paid.return_value": ("", 5)}), set()
    calls.journal, calls._traces = mock.Mock(), mock.Mock()
    call = mock.Mock(began=0.0, first=None, endpoint="", **{"consumer.monthly_micros": None, "completion": None})
    call.request.body, call.request.metadata = {"messages": [{"role": "user", "content": "?"}]}, {}
    calls._store(call, {"response": {"content": "jane@example.org " * (5_000 if long else 5)}}, object())
    assert call.cost_micros == 5 and len(redacted) == (not long)
    await asyncio.gather(*calls._ends)
    assert len(redacted) == 1 and (redacted[0] == loop) == (not long) and calls._traces.put.call_count == 1


@pytest.mark.django_db(transaction=True)
async def test_a_process_that_ends_has_freed_the_calls_that_ended(
    broker: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, freed = Calls(tmp_path), []

    async def end(*call: object) -> None:
        await asyncio.sleep(0.02)
        freed.append(call)

    calls._run_in_background(end("key", "call"), calls._ends)
    await calls.aclose()
    assert freed == [("key", "call")]


@pytest.mark.django_db(transaction=True)
def test_calls_at_once_pass_a_keys_month_by_one_call(
    fleet: Fleet, adam: Any, acme: Organization, server: ModelServer, journal: str
) -> None:
    server.latency_s = 0.5
    shop = production(fleet, Actor(adam), server, acme, GATEWAY_JOURNAL=journal)
    _, poor = api_key_create(Actor(adam), name="poor", scopes=CALLS, monthly_micros=1)
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: shop.ask(headers={"authorization": f"Bearer {poor}"}), range(16)))
    assert Counter(one.status_code for one in answers) == {200: 1, 402: 15}
    assert len(server.requests) == 1 and any("under way" in one.text for one in answers)


async def test_a_caller_who_leaves_while_redis_is_asked_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    holds, key = KeyHolds(), uuid.uuid4()
    monkeypatch.setattr(holds, "_redis", asked := mock.Mock())
    asked.return_value.eval = lambda *_: asyncio.sleep(60)
    call = mock.Mock(upstreams=(), id=uuid.uuid4(), held=False, arm=ArmName.CURRENT, most_micros=None)
    call.consumer = mock.Mock(key_id=key, monthly_micros=9, spent_micros=0, read_at=0.0)
    endpoints = EndpointCalls(mock.Mock(), holds)
    asking = asyncio.ensure_future(endpoints._hold(call, mock.Mock(prompt_tokens=1, max_tokens=1), 0))
    await asyncio.sleep(0.01)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert call.held and key in holds._own  # by which the end of the call releases it
    asked.return_value.eval = mock.AsyncMock()
    await holds.end(key, call.id, 0)
    assert key not in holds._own


async def test_a_late_redis_counts_no_call_twice(broker: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    rates, key = KeyRates(), uuid.uuid4()
    assert [await rates.turn(key, 3) for _ in range(2)] == [0, 0]
    monkeypatch.setattr(rates, "_redis", late := mock.Mock())
    late.return_value.eval = mock.AsyncMock(side_effect=TimeoutError)
    assert [await rates.turn(key, 3) > 0 for _ in range(3)] == [False, True, True]


def test_spending_since_a_read_is_added_until_a_later_read_includes_that_spending() -> None:
    spending, key = RecentSpending(), uuid.uuid4()
    row = {"key_id": str(key), "arm": "current", "cost_micros": 5}
    spending.add(row)
    spending.add(row | {"arm": "shadow"})
    assert spending.since(key, float("inf")) == 5  # not written: no read can have it
    spending.written(row)
    spending.written(row | {"arm": "shadow"})
    assert spending.since(key, 0.0) == 5
    assert spending.since(key, float("inf")) == 0 == spending.since(uuid.uuid4(), 0.0)


def trace_row(key: ApiKey, **values: Any) -> dict[str, Any]:
    return {
        "id": str(uuid.uuid4()), "organization_id": str(key.organization_id), "key_id": str(key.pk), "arm": "",
        "session": "", "model": "small", "status": "ok", "cost_micros": 400_000, "safety": None, "duration_ms": 1.0,
        "created_at": timezone.now().isoformat(),
    } | values  # fmt: skip


@pytest.fixture
def spent(adam: Any, olivia: Any, acme: Organization) -> dict[str, ApiKey]:
    """Keys of two people; one spent what it may, and something in the month before."""
    keys = {
        "shop": api_key_create(Actor(adam), name="shop", scopes=CALLS, monthly_micros=800_000, per_minute=60)[0],
        "lab": api_key_create(Actor(olivia), name="lab", scopes=CALLS)[0],
    }
    api_key_create(Actor(adam), name="blind", scopes=["training:view"])
    first = trace_row(keys["shop"])
    before = (month_of() - timedelta(days=1)).isoformat() + "T12:00:00+00:00"
    traces_write([first, first, trace_row(keys["shop"]), trace_row(keys["lab"], arm="shadow")])
    traces_write(
        [first, trace_row(keys["shop"], created_at=before, cost_micros=7), trace_row(keys["lab"], key_id=None)]
    )
    return keys


@pytest.mark.django_db
def test_a_trace_that_is_written_twice_counts_once_and_a_shadow_never(spent: dict[str, ApiKey]) -> None:
    rows = KeySpending.objects.order_by("month").values_list("key_id", "spent_micros", "calls")
    assert list(rows) == [(spent["shop"].pk, 7, 1), (spent["shop"].pk, 800_000, 2)]


@pytest.mark.django_db
def test_spending_is_listed_by_rest_and_on_a_page(
    spent: dict[str, ApiKey], adam: Any, olivia: Any, charlie: Any
) -> None:
    def listed(person: Any, **query: Any) -> dict[str, float]:
        scopes = ["training:view", "training:manage"]
        return {
            row["name"]: row["spent_usd"]
            for row in Caller(person, scopes).get("key-spending", **query).json()["results"]
        }

    assert listed(adam) == {"shop": 0.8, "lab": 0.0}
    assert listed(adam, state="exhausted") == {"shop": 0.8} == listed(adam, search="SHO")
    assert listed(adam, month=f"{month_of() - timedelta(days=1):%Y-%m}") == {"shop": 0.000007, "lab": 0.0}
    assert listed(adam, state="ended") == {}
    assert listed(olivia) == {"lab": 0.0}  # who manages no keys sees her own
    assert listed(charlie) == {}
    assert Caller(adam).get("key-spending", month="July").status_code == 400
    [row] = Caller(adam).get("key-spending", state="exhausted").json()["results"]
    assert (row["owner"], row["calls"], row["per_minute"], row["monthly_usd"]) == ("adam", 2, 60, 0.8)

    client = Client()
    client.force_login(adam)
    page = html(client.get("/keys/?sort=spent"))
    for shown in ("shop", "lab", "blind", "$0.80", "not limited", "of adam"):
        assert shown in page, shown
    assert page.index(">shop<") < page.index(">lab<")
    assert "$0.000007" in html(client.get(f"/keys/?month={month_of() - timedelta(days=1):%Y-%m}"))
    assert "No key matches" in html(client.get("/keys/?state=ended"))
    client.force_login(charlie)
    theirs = html(client.get("/keys/"))
    assert ">lab<" not in theirs and ">shop<" not in theirs
    ApiKey.objects.filter(user=charlie).delete()
    assert "No key yet" in html(client.get("/keys/"))


@pytest.mark.django_db
def test_limits_are_given_when_a_key_is_made(adam: Any) -> None:
    made = Caller(adam).post("api-keys", {"name": "x", "scopes": CALLS, "per_minute": 5, "monthly_usd": 2.5})
    assert (made.status_code, made.json()["per_minute"], made.json()["monthly_usd"]) == (201, 5, 2.5)
    for wrong in (
        {"per_minute": 0},
        {"monthly_usd": -1},
        {"scopes": ["training:view"], "per_minute": 5},
        {"scopes": [*CALLS, "training:manage"], "monthly_usd": 1},  # it could make a key without its limits
    ):
        answer = Caller(adam).post("api-keys", {"name": "x", "scopes": CALLS} | wrong)
        assert answer.status_code == 400, (wrong, answer.content)
    with pytest.raises(Invalid, match="out of range"):
        api_key_create(Actor(adam), name="x", scopes=CALLS, per_minute=0)

    said = io.StringIO()
    given = ("--user", "adam", "--scopes", *CALLS, "--per-minute", "9", "--monthly-usd")
    call_command("create_api_key", *given, "0.25", stdout=said)
    row = ApiKey.objects.get(prefix=said.getvalue()[:10])
    assert (row.per_minute, row.monthly_micros) == (9, 250_000)
    with pytest.raises(CommandError, match="no amount of dollars"):
        call_command("create_api_key", *given, "much")
