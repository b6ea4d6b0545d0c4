"""``make bench ARGS="restarts [number]"``: calls that a restart loses, and those that a killed process of the gateway
loses.

``manage.py up`` at shipped settings, in a folder that goes at the end; settings of the environment hold for it. 32
callers with a kept connection each call an agent, follow streams and read a list. Meanwhile ``manage.py restart`` runs
at random moments, then a process of the gateway is killed. Ends with one JSON object; its exit code is 1 where a
restart lost a call, or a kill more than one call of a caller.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import psycopg

from agentcore_site import env
from agentcore_site.embedded.ports import free_port
from agentcore_site.embedded.stack import Stack
from agentcore_site.lib import row_scope
from tests.support import database_snapshot
from tests.support.up import Up, environment

CALLERS: Final = {"call": 16, "stream": 8, "list": 8}
PAUSE: Final = 0.3  # seconds between two calls of a caller, at most
WORD_SECONDS: Final = 0.15
START_SECONDS: Final = 600.0
CALM_SECONDS: Final = 5.0
FINISHED_SECONDS: Final = 60.0
ASKED: Final = [{"role": "user", "content": "Where is my order?"}]


class Callers:
    """Call until ``ended``. ``under_way``: kinds of calls by caller; ``lost``: by kind and reason."""

    def __init__(self, base: str, needs: dict[str, str], draw: random.Random) -> None:
        self.base, self.needs, self.draw = base, needs, draw
        self.answered, self.lost = Counter[str](), Counter[str]()
        self.under_way: dict[int, str] = {}
        self.longest = 0.0
        self.ended = asyncio.Event()

    async def call(self, kind: str, caller: int) -> None:
        headers = {"Authorization": f"Bearer {self.needs['key']}"}
        async with httpx.AsyncClient(base_url=self.base, headers=headers, timeout=60) as http:
            while not self.ended.is_set():
                began, self.under_way[caller] = time.monotonic(), kind
                try:
                    await getattr(self, f"_{kind}")(http)
                    self.answered[kind] += 1
                except (httpx.HTTPError, AssertionError) as error:
                    self.lost[f"{kind}: {type(error).__name__} {str(error)[:200]}"] += 1
                del self.under_way[caller]
                self.longest = max(self.longest, time.monotonic() - began)
                await asyncio.sleep(self.draw.uniform(0, PAUSE))

    async def _call(self, http: httpx.AsyncClient) -> None:
        answer = await http.post("/v1/chat/completions", json={"model": self.needs["model"], "messages": ASKED})
        assert answer.status_code == 200, f"{answer.status_code} {answer.text}"

    async def _stream(self, http: httpx.AsyncClient) -> None:
        body = {"model": self.needs["model"], "messages": ASKED, "stream": True}
        async with http.stream("POST", "/v1/chat/completions", json=body) as answer:
            text = (await answer.aread()).decode()
        assert answer.status_code == 200 and text.rstrip().endswith("[DONE]"), f"{answer.status_code} {text[-200:]}"

    async def _list(self, http: httpx.AsyncClient) -> None:
        answer = await http.get("/api/v1/agents")
        assert answer.status_code == 200, f"{answer.status_code} {answer.text}"


def main(arguments: list[str]) -> int:
    restarts = int(arguments[0]) if arguments else 3
    folder = Path(tempfile.mkdtemp(prefix="restarts-"))
    folder.chmod(0o711)
    port = free_port(0)
    command = [sys.executable, "-m", "tests.support.quick_server", "--latency", ".1", "--pause", str(WORD_SECONDS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as quick:
        with_migrations(folder / "data")
        up = Up(folder / "data", "--port", str(port))
        try:
            up.until("SELECT count(*) > 0 FROM django_migrations", START_SECONDS)
            while " ready after " not in up.tail():
                assert up.process.poll() is None, up.tail()
                time.sleep(0.5)
            urls = up.urls()
            os.environ.update(
                {name.upper(): urls[name] for name in ("database_url", "redis_url")},
                DATA_DIR=str(up.data),
                OUTBOUND_ALLOW="127.0.0.0/8",
            )
            assert quick.stdout is not None
            needs = served_agent(quick.stdout.readline().strip())
            found = asyncio.run(measured(up, f"http://127.0.0.1:{port}", needs, restarts))
        finally:
            up.stop()
            quick.terminate()
            shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(found))
    return int(found["lost_by_restarts"] > 0 or found["lost_by_kill"] > found["callers_of_killed"])


def with_migrations(data: Path) -> None:
    """Gives the site the database of the tests' snapshot, where there is one: migrations take 16 s of a core."""
    data.mkdir(mode=0o711)
    stack = Stack(data, lambda line: None, any_port=True)
    database_snapshot.restore(stack)
    if database_snapshot.is_copy:
        url = urlsplit(stack.start_database()["database_owner_url"])
        try:
            with psycopg.connect(url._replace(path="/postgres").geturl(), autocommit=True) as connection:
                connection.execute(f"DROP DATABASE {url.path[1:]}")
                connection.execute(f"ALTER DATABASE {database_snapshot.NAME} RENAME TO {url.path[1:]}")
        finally:
            stack.stop()


def served_agent(service: str) -> dict[str, str]:
    """Makes an organisation with an agent that is served, and a key."""
    import django

    django.setup()
    row_scope.outside(row_scope.EVERYTHING)
    from agentcore_site.tenancy.actors import Actor
    from agentcore_site.tenancy.roles import Role
    from agentcore_site.tenancy.services import api_key_create
    from budgets.services import price_set
    from tests import factories
    from tests.performance.gateway import served
    from tests.support.playbooks import PRICE

    member = factories.MembershipFactory(role=Role.ADMIN)
    admin, owner = Actor(member.user), member.organization
    price_set(admin, model="small", organization=owner, input_micros=PRICE[0], output_micros=PRICE[1])
    model = served(admin, owner, "served", service)
    return {"model": model, "key": api_key_create(admin, name="work", scopes=["gateway:call", "training:view"])[1]}


async def measured(up: Up, base: str, needs: dict[str, str], restarts: int) -> dict[str, Any]:
    draw = random.Random(seed := int(os.environ.get("RESTARTS_SEED") or random.randrange(10**6)))
    print("seed", seed, file=sys.stderr)
    callers = Callers(base, needs, draw)
    kinds = [kind for kind, count in CALLERS.items() for _ in range(count)]
    async with asyncio.TaskGroup() as group:
        for number, kind in enumerate(kinds):
            group.create_task(callers.call(kind, number))
        await asyncio.sleep(CALM_SECONDS)  # what is loaded by first calls
        before, seconds, replaced, first_lost = sum(callers.answered.values()), [], [], callers.lost.copy()
        for _ in range(restarts):
            await asyncio.sleep(draw.uniform(0, 2))
            began = time.monotonic()
            replaced.append(await restarted(up))
            seconds.append(time.monotonic() - began)
            await asyncio.sleep(CALM_SECONDS)
        figures: dict[str, Any] = {
            "seed": seed,
            "restarts": restarts,
            "seconds": [round(one, 1) for one in seconds],
            "slowest_successor_seconds": max(one for by_name in replaced for one in by_name.values()),
            "answered": sum(callers.answered.values()) - before,
            "answered_by_kind": dict(callers.answered),
            "lost_before": dict(first_lost),
            "lost_by_restarts": (callers.lost - first_lost).total(),
            "lost": dict(callers.lost - first_lost),
            "longest_call_seconds": round(callers.longest, 2),
        }
        callers.lost.clear()
        figures |= await killed(up, callers)
        callers.ended.set()
    figures["seconds_until_no_hold_is_left"] = await until(
        lambda: not up.rows("SELECT 1 FROM budgets_reservation WHERE state = 'held' LIMIT 1")
    )
    return figures


async def restarted(up: Up) -> dict[str, float]:
    """Restarts the site. Returns the seconds that each successor needed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(env.ROOT / "manage.py"), "restart"),
        env=environment(up.data),
        stdout=asyncio.subprocess.PIPE,
    )
    began, found = time.monotonic(), {}
    assert process.stdout is not None
    async for line in process.stdout:
        name, _, state = line.decode().strip().partition(": ")
        if state == "replaced":
            found[name] = round(time.monotonic() - began, 1)
        began = time.monotonic()
    assert await process.wait() == 0, up.tail()
    return found


async def killed(up: Up, callers: Callers) -> dict[str, Any]:
    """Kills a process of the gateway."""
    [[pid]] = up.rows("SELECT pid FROM jobs_hostprocess WHERE name = 'gateway'")
    files = [Path(os.readlink(one)) for one in Path(f"/proc/{pid}/fd").iterdir() if one.exists()]
    journals = [one for one in files if one.suffix == ".journal"]
    under_way = sum(kind != "list" for kind in callers.under_way.values())
    os.kill(pid, signal.SIGKILL)
    finished = await until(lambda: not any(one.exists() for one in journals))
    at_once = callers.lost.total()
    await asyncio.sleep(CALM_SECONDS)
    return {
        "under_way_at_kill": under_way,
        "callers_of_killed": CALLERS["call"] + CALLERS["stream"],
        "lost_by_kill": callers.lost.total(),
        "lost_after_kill": callers.lost.total() - at_once,
        "lost_to_kill": dict(callers.lost),
        "journals_of_killed": len(journals),
        "seconds_until_its_journals_are_finished": finished,
    }


async def until(done: Any) -> float:
    began = time.monotonic()
    while not await asyncio.to_thread(done):
        assert time.monotonic() - began < FINISHED_SECONDS
        await asyncio.sleep(0.1)
    return round(time.monotonic() - began, 1)
