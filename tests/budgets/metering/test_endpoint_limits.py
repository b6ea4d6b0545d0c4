"""All callers of an endpoint share one breaker in a process, and one pace among all processes."""

from __future__ import annotations

import asyncio
import threading
import uuid
from itertools import pairwise

import pytest
from django.conf import LazySettings
from redis import Redis

from budgets.endpoint_limits import SharedPace, breaker_of

URL = "http://127.0.0.1:1/v1/chat/completions"


def waits(organization: uuid.UUID, purpose: str, n: int) -> list[float]:
    """Of ``n`` turns by a client in an event loop of its own."""

    async def turns() -> list[float]:
        pace = SharedPace(organization, URL)
        try:
            return [await pace.turn(purpose, 60) for _ in range(n)]
        finally:
            await pace.aclose()

    return asyncio.run(turns())


def test_a_pace_is_one_for_all_who_call_an_endpoint(broker: Redis) -> None:
    organization = uuid.uuid4()
    found: list[float] = []
    threads = [threading.Thread(target=lambda: found.extend(waits(organization, "training", 3))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 12
    found.sort()
    # One a second among all callers: the turns lie a second apart, less the time that passed while they were taken.
    assert found[-1] == pytest.approx(11, abs=1) and found[0] <= 0
    assert all(0.5 < later - earlier < 1.5 for earlier, later in pairwise(found))


def test_purposes_and_organisations_have_a_pace_of_their_own(broker: Redis) -> None:
    organization = uuid.uuid4()
    assert waits(organization, "training", 5)[-1] > 3
    assert waits(organization, "production", 1)[0] <= 0
    assert waits(uuid.uuid4(), "training", 1)[0] <= 0


def test_without_redis_each_keeps_to_the_pace_by_itself(
    settings: LazySettings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    assert waits(uuid.uuid4(), "training", 3) == [pytest.approx(number, abs=0.5) for number in range(3)]
    assert "kept to by this client alone" in caplog.text


def test_a_later_caller_finds_the_circuit_open() -> None:
    organization = uuid.uuid4()
    first = breaker_of(organization, URL)
    for _ in range(8):
        first.enter()
        first.failed()
    assert breaker_of(organization, URL).state == "open"
    assert breaker_of(uuid.uuid4(), URL).state == breaker_of(organization, URL + "x").state == "closed"
