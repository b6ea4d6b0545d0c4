"""Live events: history first, then in order, no gap and none twice over a reconnect; access is checked all along."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from channels.db import database_sync_to_async
from django.conf import settings
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from redis import Redis

from agentcore_site.jobs import consumers, lifecycle, socket_slots
from agentcore_site.jobs.events import event_add
from agentcore_site.jobs.models import Job
from agentcore_site.jobs.services import share_create, share_revoke_all
from agentcore_site.lib import broker
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.jwt_keys import AccessToken
from agentcore_site.tenancy.models import ApiKey
from agentcore_site.tenancy.services import api_key_create, api_key_revoke
from agentcore_site.tenancy.tokens import family_end, family_start, sign_out_everywhere
from tests.support.rounds import rounds
from tests.support.sockets import Socket, browser_headers

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.asyncio]


@pytest.fixture
def job(acme: Any, operator: Actor) -> Job:
    with transaction.atomic():
        return lifecycle.submit(operator, kind="training", organization=acme, title="watched")


@database_sync_to_async
def tick(job: Job, n: int = 1) -> None:
    for _ in range(n):
        with transaction.atomic():
            event_add(job, "tick")


async def socket(path: str, user: Any = None, **headers: str) -> Socket:
    """Opened by a page of ours where there is a ``user``, else by a program."""
    return Socket(path, **(await browser_headers(user) if user is not None else {}), **headers)


async def opened(path: str, user: Any = None, **headers: str) -> Socket:
    """One whose first event has come."""
    one = await socket(path, user, **headers)
    await one.connect()
    assert await received(one, 1) == [1]
    return one


async def received(one: Socket, n: int) -> list[int]:
    return [(await one.receive_json())["seq"] for _ in range(n)]


async def refused(one: Socket) -> int:
    await one.connect()
    return await one.closed()


async def test_history_comes_first_then_what_happens(job: Job, olivia: Any) -> None:
    await tick(job, 3)
    one = await socket(f"/ws/jobs/{job.id}/", olivia)
    await one.connect()
    assert await received(one, 4) == [1, 2, 3, 4]
    await tick(job, 2)
    assert await received(one, 2) == [5, 6]
    await one.disconnect()


async def test_a_reconnect_misses_nothing_and_repeats_nothing(job: Job, olivia: Any) -> None:
    first = await socket(f"/ws/jobs/{job.id}/", olivia)
    await first.connect()
    assert await received(first, 1) == [1]
    await first.disconnect()
    await tick(job, 30)
    again = await socket(f"/ws/jobs/{job.id}/?after=1", olivia)
    await again.connect()
    writing = asyncio.create_task(tick(job, 30))
    assert await received(again, 60) == list(range(2, 62))
    await writing
    await again.disconnect()


async def test_a_lost_nudge_costs_seconds_and_no_event(job: Job, olivia: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "POLL_SECONDS", 0.2)
    monkeypatch.setattr("agentcore_site.jobs.events.announce", lambda job_id, seq: None)
    one = await socket(f"/ws/jobs/{job.id}/?after=1", olivia)
    await one.connect()
    await tick(job)
    assert await received(one, 1) == [2]
    await one.disconnect()


async def test_strangers_are_turned_away(job: Job, charlie: Any) -> None:
    assert await refused(await socket(f"/ws/jobs/{job.id}/", charlie)) == consumers.GONE
    assert await refused(await socket(f"/ws/jobs/{job.id}/")) == consumers.GONE
    assert await refused(await socket("/ws/jobs/nonsense/", charlie)) == consumers.GONE
    assert await refused(await socket("/ws/shared/nonsense/")) == consumers.GONE


async def test_a_key_opens_the_socket_too(job: Job, operator: Actor) -> None:
    _, key = await database_sync_to_async(api_key_create)(operator, name="k", scopes=["training:view"])
    one = await socket(f"/ws/jobs/{job.id}/", authorization=f"Bearer {key}")
    await one.connect()
    assert await received(one, 1) == [1]
    await one.disconnect()


async def test_a_share_link_shows_a_job_without_an_account_until_the_link_is_revoked(
    job: Job, operator: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "POLL_SECONDS", 0.2)
    token = await database_sync_to_async(share_create)(operator, job)
    one = await socket(f"/ws/shared/{token}/")
    await one.connect()
    assert await received(one, 1) == [1]
    assert await database_sync_to_async(share_revoke_all)(operator, job) == 1
    assert await one.closed() == consumers.FORBIDDEN
    assert await refused(await socket(f"/ws/shared/{token}/")) == consumers.GONE


# -- who may ---------------------------------------------------------------------------------------------------------


async def test_a_program_needs_no_origin_with_a_key_or_a_token(job: Job, operator: Actor) -> None:
    _, key = await database_sync_to_async(api_key_create)(operator, name="k", scopes=["training:view"])
    tokens = await database_sync_to_async(family_start)(operator)
    for token in (key, tokens["access"]):
        one = await opened(f"/ws/jobs/{job.id}/", authorization=f"Bearer {token}")
        await one.disconnect()
    assert await refused(await socket(f"/ws/jobs/{job.id}/", authorization=f"Bearer {tokens['refresh']}")) == 4404


async def test_a_foreign_page_can_not_use_the_session_of_its_reader(job: Job, olivia: Any) -> None:
    for origin in ({"origin": "https://evil.example"}, {}):
        headers = await browser_headers(olivia)
        del headers["origin"]
        one = Socket(f"/ws/jobs/{job.id}/", **headers, **origin)
        await one.send_input({"type": "websocket.connect"})
        assert (await one.receive_output(5))["type"] == "websocket.close"  # before it is accepted: HTTP 403


async def test_a_wrong_address_is_closed_without_a_stack_trace(caplog: pytest.LogCaptureFixture) -> None:
    for path in ("/ws/nothing/", "/", "/ws/jobs/", "/ws/jobs/a/b/", "/ws/shared/\x00/", "/ws/jobs/\ud7ff/"):
        assert await refused(await socket(path)) == consumers.GONE
    assert caplog.records == []


@pytest.mark.rounds
@pytest.mark.parametrize("ended_by", ["everywhere", "sign-out", "password", "key", "membership", "disabled"])
async def test_an_ended_credential_closes_its_open_sockets_within_one_poll(
    job: Job, operator: Actor, ended_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "POLL_SECONDS", rounds(0.4, consumers.POLL_SECONDS))
    key, secret = await database_sync_to_async(api_key_create)(operator, name="k", scopes=["training:view"])
    tokens = await database_sync_to_async(family_start)(operator)
    path = f"/ws/jobs/{job.id}/"
    of_key = await opened(path, authorization=f"Bearer {secret}")
    of_token = await opened(path, authorization=f"Bearer {tokens['access']}")
    of_session = await opened(path, operator.user)
    await database_sync_to_async(_end)(ended_by, operator, key, tokens["refresh"])
    closing = {
        "everywhere": [of_token, of_session],
        "sign-out": [of_token],
        "password": [of_token, of_session],
        "key": [of_key],
        "membership": [of_key, of_token, of_session],
        "disabled": [of_key, of_token, of_session],
    }[ended_by]
    codes = await asyncio.gather(*(one.closed(consumers.POLL_SECONDS + 2) for one in closing))
    assert set(codes) == {consumers.FORBIDDEN}
    for one in {of_key, of_token, of_session} - {*closing}:
        assert await one.receive_nothing(2 * consumers.POLL_SECONDS)
    await asyncio.gather(*(one.disconnect() for one in (of_key, of_token, of_session)))


def _end(by: str, operator: Actor, key: ApiKey, refresh: str) -> None:
    user = operator.user
    if by == "everywhere":
        sign_out_everywhere(operator)
    elif by == "sign-out":
        family_end(refresh)
    elif by == "key":
        api_key_revoke(operator, key)
    elif by == "membership":
        user.memberships.all().delete()
    elif by == "disabled":
        type(user).objects.filter(pk=user.pk).update(is_active=False)
    else:
        user.set_password("another long password")
        user.save()


async def test_a_token_that_expires_closes_its_socket(job: Job, operator: Actor) -> None:
    access = AccessToken((await database_sync_to_async(family_start)(operator))["access"])
    access.set_exp(lifetime=timedelta(seconds=2))
    one = await opened(f"/ws/jobs/{job.id}/", authorization=f"Bearer {access}")
    assert await one.closed(consumers.POLL_SECONDS + 4) == consumers.FORBIDDEN


# -- how many --------------------------------------------------------------------------------------------------------


async def test_a_link_and_a_person_have_so_many_sockets_and_one_that_closes_makes_room(
    job: Job, operator: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "SOCKETS_PER_LINK", 3)
    monkeypatch.setattr(settings, "SOCKETS_PER_PERSON", 3)
    token = await database_sync_to_async(share_create)(operator, job)
    for path, user in ((f"/ws/shared/{token}/", None), (f"/ws/jobs/{job.id}/", operator.user)):
        open_ones = [await opened(path, user) for _ in range(3)]
        assert await refused(await socket(path, user)) == consumers.TOO_MANY
        await open_ones.pop().disconnect()
        open_ones.append(await opened(path, user))
        assert await refused(await socket(path, user)) == consumers.TOO_MANY
        await asyncio.gather(*(one.disconnect() for one in open_ones))


async def test_the_sockets_of_a_killed_process_make_room_by_themselves(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_slots, "LEASE_SECONDS", 1)
    assert socket_slots.slot_take("person:x", "of the killed one", 1)
    assert not socket_slots.slot_take("person:x", "next", 1)
    await asyncio.sleep(1.1)
    assert socket_slots.slot_take("person:x", "next", 1)


async def test_sockets_are_limited_while_redis_is_away(
    job: Job, operator: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "SOCKETS_PER_PERSON", 3)
    path = f"/ws/jobs/{job.id}/"
    before = await opened(path, operator.user)
    away = Redis.from_url("redis://127.0.0.1:1/0", **settings.REDIS_TIMEOUTS)
    monkeypatch.setattr(socket_slots, "site_redis", lambda: away)
    monkeypatch.setattr(broker, "_away_until", {})  # and what it was afterwards
    later = [await opened(path, operator.user) for _ in range(2)]
    assert await refused(await socket(path, operator.user)) == consumers.TOO_MANY
    await later.pop().disconnect()
    later.append(await opened(path, operator.user))
    await asyncio.gather(*(one.disconnect() for one in (before, *later)))
    assert f"person:{operator.user.pk}" not in socket_slots._here


# -- what is sent to it ----------------------------------------------------------------------------------------------

DEEP = "[" * 16_000
LARGE: list[dict[str, Any]] = [{"text": "x" * 16_385}, {"text": "\u20ac" * 6_000}, {"bytes": b"x" * 1_000_000}]
FRAMES: list[dict[str, Any]] = [
    {"text": "{"},
    {"text": DEEP},
    {"text": "x" * 16_384},
    {"text": ""},
    {"text": '{"type": "websocket.close"}'},
    {"bytes": b"\xff\x00\xfe"},
    {"bytes": b"x" * 16_384},
]


async def test_messages_of_a_page_are_ignored_and_leave_no_poller(
    job: Job, operator: Actor, caplog: pytest.LogCaptureFixture
) -> None:
    token = await database_sync_to_async(share_create)(operator, job)
    ones = [await opened(f"/ws/shared/{token}/") for _ in range(20)]
    for one in ones:
        for frame in FRAMES:
            await one.send_input({"type": "websocket.receive", "text": None, "bytes": None} | frame)
    await tick(job)
    assert [await received(one, 1) for one in ones] == [[2]] * 20
    await asyncio.gather(*(one.disconnect() for one in ones))
    assert pollers() == 0
    assert [record for record in caplog.records if record.exc_info] == []


@pytest.mark.parametrize("frame", LARGE, ids=["text", "euros", "bytes"])
async def test_a_large_frame_closes_its_socket_at_every_server(
    job: Job, operator: Actor, frame: dict[str, Any]
) -> None:
    one = await opened(f"/ws/jobs/{job.id}/", operator.user)
    await one.send_input({"type": "websocket.receive", "text": None, "bytes": None} | frame)
    assert await one.closed() == consumers.TOO_LARGE
    await one.disconnect()
    assert pollers() == 0


async def test_a_cut_or_a_failing_socket_leaves_no_poller(
    job: Job, operator: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "POLL_SECONDS", 0.4)
    token = await database_sync_to_async(share_create)(operator, job)
    cancelled, failing = [await opened(f"/ws/shared/{token}/") for _ in range(2)]
    assert pollers() == 2
    cancelled.future.cancel()  # as a server does that shuts down
    await failing.send_input({"type": "websocket.nonsense"})
    with pytest.raises(ValueError, match="No handler"):
        await failing.wait(5)
    await cancelled.wait(5)
    assert pollers() == 0
    queries = CaptureQueriesContext(connection)
    await database_sync_to_async(queries.__enter__)()
    await asyncio.sleep(consumers.POLL_SECONDS + 0.5)
    assert await database_sync_to_async(lambda: len(queries.captured_queries))() == 0
    await database_sync_to_async(queries.__exit__)(None, None, None)


def pollers() -> int:
    return sum("JobConsumer._pump" in str(task.get_coro()) for task in asyncio.all_tasks() if not task.done())
