"""Large requests of one sender take turns; small ones and those of others wait for none."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from typing import Any

import pytest

from agentcore_site.lib.large_bodies import AT_ONCE, LARGE, LargeBodies


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
        try:
            await self.open.wait()
        finally:
            self.inside[name] -= 1


def request(path: str, *, size: int = LARGE + 1, key: str = "", **more: str) -> dict[str, Any]:
    headers = [(b"content-length", str(size).encode())] if size >= 0 else []
    headers += [(b"authorization", key.encode())] if key else []
    headers += [(name.replace("_", "-").encode(), value.encode()) for name, value in more.items()]
    return {"type": "http", "method": "POST", "path": path, "headers": headers, "client": ("10.0.0.1", 5)}


async def whole() -> dict[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


async def never() -> dict[str, Any]:
    await asyncio.sleep(60)
    return {}


@pytest.mark.parametrize("more", [{}, {"size": -1}, {"size": 20, "content_encoding": "gzip"}])
async def test_large_bodies_of_a_sender_take_turns(more: dict[str, Any]) -> None:
    door = Door()
    site = LargeBodies(door)
    calls = [site(request("/flood", key="Bearer a", **more), whole, None) for _ in range(10)]
    calls += [site(request("/other", key="Bearer b", **more), whole, None), site(request("/none", **more), whole, None)]
    calls += [site(request("/small", size=9, key="Bearer a"), whole, None) for _ in range(10)]
    tasks = [asyncio.ensure_future(one) for one in calls]
    await asyncio.sleep(0.01)
    assert door.inside == {"/flood": AT_ONCE, "/other": 1, "/none": 1, "/small": 10}
    tasks[0].cancel()  # its place is another one's
    await asyncio.sleep(0.01)
    assert door.inside["/flood"] == AT_ONCE
    door.open.set()
    await asyncio.gather(*tasks[1:])
    assert door.most["/flood"] == AT_ONCE
    tasks.clear()
    calls.clear()
    gc.collect()
    assert not site._turns


async def test_a_body_that_has_not_arrived_keeps_no_place() -> None:
    door = Door()
    site = LargeBodies(door)
    slow = [asyncio.ensure_future(site(request("/slow"), never, None)) for _ in range(10)]
    quick = asyncio.ensure_future(site(request("/quick"), whole, None))
    await asyncio.sleep(0.01)
    assert door.inside == {"/quick": 1}
    for one in [*slow, quick]:
        one.cancel()
