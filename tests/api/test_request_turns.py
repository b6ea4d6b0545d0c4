"""Requests of one sender take turns; those of others wait for none."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from agentcore_site.lib import request_turns
from agentcore_site.lib.request_turns import (
    AT_ONCE,
    LARGE,
    LARGE_AT_ONCE,
    OF_ADDRESS,
    RequestTurns,
    sender_belongs_to,
    turn_end,
)
from agentcore_site.request_bodies import BoundedBodies
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.services import api_key_create


class Door:
    """An application that answers when it may, and counts who is inside."""

    def __init__(self) -> None:
        self.inside, self.most, self.open = Counter[str](), Counter[str](), asyncio.Event()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        name = scope["path"]
        self.inside[name] += 1
        self.most[name] = max(self.most[name], self.inside[name])
        if organization := dict(scope["headers"]).get(b"x-of"):  # as the database says it, after the turn
            sender_belongs_to(organization)
        try:
            if name == "/waits-for-a-job":
                turn_end()
            if name == "/download":
                await send({"type": "http.response.start"})
            await self.open.wait()
        finally:
            self.inside[name] -= 1


def request(path: str, *, size: int = 0, key: str = "", address: str = "10.0.0.1", **more: str) -> dict[str, Any]:
    headers = [(b"content-length", str(size).encode())] if size >= 0 else []
    headers += [(b"authorization", key.encode())] if key else []
    headers += [(name.replace("_", "-").encode(), value.encode()) for name, value in more.items()]
    return {"type": "http", "method": "POST", "path": path, "headers": headers, "client": (address, 5)}


async def whole() -> dict[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


async def never() -> dict[str, Any]:
    await asyncio.sleep(60)
    return {}


async def sent(message: Any) -> None:
    """Drops the answer."""


class Tried:
    """Requests that are under way in front of a door."""

    def __init__(self) -> None:
        self.door = Door()
        self.turns = RequestTurns(self.door)
        self.tasks: list[asyncio.Task[None]] = []

    async def ask(self, number: int, *arguments: Any, receive: Any = whole, **more: Any) -> None:
        for _ in range(number):
            one = self.turns(request(*arguments, **more), receive, sent)
            self.tasks.append(asyncio.ensure_future(one))
        await asyncio.sleep(0.01)

    async def end(self) -> None:
        self.door.open.set()
        await asyncio.gather(*self.tasks)
        self.tasks.clear()
        gc.collect()
        assert not self.turns._turns


@pytest.mark.parametrize("more", [{"size": LARGE + 1}, {"size": -1}, {"size": 20, "content_encoding": "gzip"}])
async def test_large_bodies_of_a_sender_take_turns(more: dict[str, Any]) -> None:
    tried = Tried()
    await tried.ask(10, "/flood", key="Bearer a", **more)
    await tried.ask(1, "/other", key="Bearer b", **more)
    await tried.ask(1, "/none", **more)
    await tried.ask(2, "/small", key="Bearer a")
    assert tried.door.inside == {"/flood": LARGE_AT_ONCE, "/other": 1, "/none": 1, "/small": 2}
    tried.tasks.pop(0).cancel()  # its place is another one's
    await asyncio.sleep(0.01)
    assert tried.door.inside["/flood"] == LARGE_AT_ONCE
    await tried.end()
    assert tried.door.most["/flood"] == LARGE_AT_ONCE


@pytest.mark.parametrize(
    "sender", [{"key": "Bearer a"}, {"cookie": "csrftoken=x; sessionid=a"}, {"cookie": "sessionid=a; theme=dark"}]
)
async def test_requests_of_a_key_or_a_session_take_turns(sender: dict[str, str]) -> None:
    tried = Tried()
    await tried.ask(20, "/flood", **sender)
    await tried.ask(1, "/sign-in")
    await tried.ask(2, "/other", key="Bearer b")
    await tried.ask(1, "/person", cookie="sessionid=b")
    assert tried.door.inside == {"/flood": AT_ONCE, "/sign-in": 1, "/other": 2, "/person": 1}
    await tried.end()
    assert tried.door.most["/flood"] == AT_ONCE


async def test_an_address_with_many_keys_has_so_many_places_and_keeps_none_from_others() -> None:
    tried = Tried()
    for number in range(30):
        await tried.ask(1, "/flood", key=f"Bearer {number}", address="10.0.0.2")
    await tried.ask(30, "/anonymous", address="10.0.0.3")
    await tried.ask(2, "/other", key="Bearer b")
    assert tried.door.inside == {"/flood": OF_ADDRESS, "/anonymous": OF_ADDRESS, "/other": 2}
    await tried.end()


async def test_keys_of_one_organisation_take_turns_from_their_second_request_on(settings: Any) -> None:
    settings.ORGANIZATION_REQUESTS_AT_ONCE = 3
    tried = Tried()
    flood = [{"key": f"Bearer {number}", "address": f"10.0.1.{number}", "x_of": "flood"} for number in range(20)]
    tried.door.open.set()
    for one in flood:  # their first requests say whose they are
        await tried.ask(1, "/first", **one)
    tried.door.open.clear()
    for one in flood:
        await tried.ask(1, "/flood", **one)
    await tried.ask(2, "/quiet", key="Bearer quiet", address="10.0.2.1", x_of="quiet")
    await tried.ask(1, "/anonymous", address="10.0.2.2")
    assert tried.door.inside == {"/flood": 3, "/quiet": 2, "/anonymous": 1, "/first": 0}
    await tried.end()
    assert tried.door.most["/flood"] == 3


def test_a_process_remembers_so_many_senders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_turns, "KNOWN", 10)
    turns = RequestTurns(Door())
    for number in range(25):
        turns._note(str(number).encode(), number)
    assert len(turns._organizations) <= 10 and turns._organizations[b"24"] == 24


@pytest.mark.django_db(transaction=True)
async def test_a_request_says_whose_its_key_is_and_a_refused_one_nothing(operator: Actor, acme: Any) -> None:
    _, key = await sync_to_async(api_key_create)(operator, name="any", scopes=["training:view"])
    turns, statuses = RequestTurns(BoundedBodies()), list[int]()
    more = {"method": "GET", "query_string": b"", "scheme": "http", "http_version": "1.1"}

    async def answer(message: Any) -> None:
        if "status" in message:
            statuses.append(message["status"])

    for used in (key, f"{key}x"):
        arriving = iter([await whole()])

        async def receive(arriving: Any = arriving) -> Any:
            return next(arriving, None) or await never()

        scope = request("/api/v1/agents", key=f"Bearer {used}", host="localhost") | more
        await turns(scope, receive, answer)
    assert statuses == [200, 401]
    assert list(turns._organizations.values()) == [acme.pk]


async def test_a_body_that_has_not_arrived_a_download_and_who_waits_for_a_job_keep_no_place() -> None:
    tried = Tried()
    await tried.ask(10, "/slow", size=LARGE + 1, receive=never)
    slow = [tried.tasks.pop() for _ in range(10)]
    await tried.ask(10, "/download", key="Bearer a")
    await tried.ask(10, "/waits-for-a-job", key="Bearer a")
    await tried.ask(1, "/quick", size=LARGE + 1)
    assert tried.door.inside == {"/download": 10, "/waits-for-a-job": 10, "/quick": 1}
    for one in slow:
        one.cancel()
    del slow, one
    await tried.end()


async def test_a_small_request_waits_no_longer_than_its_time_for_those_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request_turns, "WAIT_SECONDS", 0.05)
    tried = Tried()
    await tried.ask(4, "/waits", key="Bearer a")
    assert tried.door.inside == {"/waits": AT_ONCE}
    await asyncio.sleep(0.1)
    assert tried.door.inside == {"/waits": 4}
    await tried.end()
