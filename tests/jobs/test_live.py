"""Live events: history first, then in order, no gap and none twice over a reconnect; access is checked all along."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from channels.db import database_sync_to_async
from channels.routing import URLRouter
from django.contrib.auth.models import AnonymousUser
from django.db import transaction

from agentcore_site.jobs import consumers, lifecycle
from agentcore_site.jobs.events import event_add
from agentcore_site.jobs.models import Job
from agentcore_site.jobs.services import share_create, share_revoke_all
from agentcore_site.routing import websocket_urlpatterns
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.services import api_key_create
from tests.support.sockets import Socket

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


def socket(path: str, user: Any = None, **headers: str) -> Socket:
    return Socket(URLRouter(websocket_urlpatterns), path, user=user or AnonymousUser(), headers=headers)


async def received(one: Socket, n: int) -> list[int]:
    return [(await one.receive_json())["seq"] for _ in range(n)]


async def refused(one: Socket) -> int:
    await one.connect()
    message = await one.receive_output(5)
    assert message["type"] == "websocket.close", message
    return int(message["code"])


async def test_history_comes_first_then_what_happens(job: Job, olivia: Any) -> None:
    await tick(job, 3)
    one = socket(f"/ws/jobs/{job.id}/", olivia)
    await one.connect()
    assert await received(one, 4) == [1, 2, 3, 4]
    await tick(job, 2)
    assert await received(one, 2) == [5, 6]
    await one.disconnect()


async def test_a_reconnect_misses_nothing_and_repeats_nothing(job: Job, olivia: Any) -> None:
    first = socket(f"/ws/jobs/{job.id}/", olivia)
    await first.connect()
    assert await received(first, 1) == [1]
    await first.disconnect()
    await tick(job, 30)
    again = socket(f"/ws/jobs/{job.id}/?after=1", olivia)
    await again.connect()
    writing = asyncio.create_task(tick(job, 30))
    assert await received(again, 60) == list(range(2, 62))
    await writing
    await again.disconnect()


async def test_a_lost_nudge_costs_seconds_and_no_event(job: Job, olivia: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "POLL_SECONDS", 0.2)
    monkeypatch.setattr("agentcore_site.jobs.events.announce", lambda job_id, seq: None)
    one = socket(f"/ws/jobs/{job.id}/?after=1", olivia)
    await one.connect()
    await tick(job)
    assert await received(one, 1) == [2]
    await one.disconnect()


async def test_strangers_are_turned_away(job: Job, charlie: Any) -> None:
    assert await refused(socket(f"/ws/jobs/{job.id}/", charlie)) == consumers.GONE
    assert await refused(socket(f"/ws/jobs/{job.id}/")) == consumers.GONE
    assert await refused(socket("/ws/jobs/nonsense/", charlie)) == consumers.GONE
    assert await refused(socket("/ws/shared/nonsense/")) == consumers.GONE


async def test_a_key_opens_it_too(job: Job, operator: Actor) -> None:
    _, key = await database_sync_to_async(api_key_create)(operator, name="k", scopes=["training:view"])
    one = socket(f"/ws/jobs/{job.id}/", authorization=f"Bearer {key}")
    await one.connect()
    assert await received(one, 1) == [1]
    await one.disconnect()


async def test_a_share_link_shows_it_without_an_account_until_it_is_revoked(
    job: Job, operator: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "POLL_SECONDS", 0.2)
    token = await database_sync_to_async(share_create)(operator, job)
    one = socket(f"/ws/shared/{token}/")
    await one.connect()
    assert await received(one, 1) == [1]
    assert await database_sync_to_async(share_revoke_all)(operator, job) == 1
    while (message := await one.receive_output(5))["type"] != "websocket.close":
        pass
    assert message["code"] == consumers.FORBIDDEN
    assert await refused(socket(f"/ws/shared/{token}/")) == consumers.GONE
