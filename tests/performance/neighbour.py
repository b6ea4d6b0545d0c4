"""``make bench ARGS="neighbour [door …]"``: one organisation floods each door in turn, another one does ordinary work.

``manage.py up`` at shipped settings with events, in a folder that goes at the end; settings of the environment hold for
it. The neighbour signs in, reads lists, calls its agent, publishes events and launches jobs, one after the other. What
each takes is compared with what it takes on an idle site. Nothing may be lost: each call is answered as it should be,
each event is received, each job runs.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

import httpx

from agentcore_site.embedded.ports import free_port
from agentcore_site.lib import row_scope
from tests.performance.neighbour_floods import DOORS
from tests.support.up import Up

SECONDS: Final = float(os.environ.get("NEIGHBOUR_SECONDS", "15"))  # of a flood
EVENTS: Final = 20_000  # of a stream of the flood
SPANS: Final = 4_000  # of an OTLP export
RATIO: Final = 3.0
START_SECONDS: Final = 600.0
PAUSE: Final = 0.05
EVERY: Final = {"job": 1.0}  # seconds between two, of what is not done all the time
ASKED: Final = [{"role": "user", "content": "Where is my order?"}]


class Work:
    """Ordinary work of an organisation: each kind in a thread of its own."""

    def __init__(self, base: str, needs: dict[str, Any]) -> None:
        self.base, self.needs = base, needs
        self.failed = Counter[str]()  # kind of work, and what came in place of its answer
        self.kinds: dict[str, Callable[[httpx.Client], bool]] = {
            "sign-in page": lambda http: self._is("sign-in page", 200, http.get("/sign-in/")),
            "page": lambda http: self._is("page", 200, http.get("/jobs/", cookies={"sessionid": needs["cookie"]})),
            "list": lambda http: self._is("list", 200, http.get("/api/v1/agents")),
            "call": self._call,
            "job": self._job,
        }

    @contextmanager
    def done(self) -> Iterator[dict[str, list[float | None]]]:
        """Seconds of each piece of work by kind, None for one that failed; complete at the end."""
        found: dict[str, list[float | None]] = defaultdict(list)
        ended = threading.Event()
        threads = [threading.Thread(target=self._do, args=(kind, found[kind], ended)) for kind in self.kinds]
        threads.append(threading.Thread(target=self._publish, args=(found["event"], ended)))
        for thread in threads:
            thread.start()
        try:
            yield found
        finally:
            ended.set()
            for thread in threads:
                thread.join()

    def _do(self, kind: str, took: list[float | None], ended: threading.Event) -> None:
        headers = {"Authorization": f"Bearer {self.needs['key']}"}
        with httpx.Client(base_url=self.base, headers=headers, timeout=60) as http:
            while not ended.wait(EVERY.get(kind, PAUSE)):
                began = time.perf_counter()
                try:
                    good = self.kinds[kind](http)
                except httpx.HTTPError as error:
                    self.failed[f"{kind}: {type(error).__name__}"] += 1
                    good = False
                took.append(time.perf_counter() - began if good else None)

    def _call(self, http: httpx.Client) -> bool:
        body = {"model": self.needs["model"], "messages": ASKED}
        return self._is("call", 200, http.post("/v1/chat/completions", json=body))

    def _is(self, kind: str, status: int, answer: httpx.Response) -> bool:
        """Whether the answer has that status; any other is noted, with the cause that it names."""
        if answer.status_code != status:
            self.failed[f"{kind}: {answer.status_code} {answer.text[:200]}"] += 1
        return answer.status_code == status

    def _job(self, http: httpx.Client) -> bool:
        """From the launch until a worker has begun."""
        body = {"agent": self.needs["slug"], "config": {"n_iterations": 300}}
        job = http.post("/api/v1/training-jobs", json=body)
        if not self._is("job", 201, job):
            return False
        path = f"/api/v1/jobs/{job.json()['job_id']}"
        until = time.monotonic() + 60
        while (status := http.get(path).json()["status"]) != "running" and time.monotonic() < until:
            time.sleep(0.02)
        http.post(f"{path}/cancel")
        while http.get(path).json()["status"] not in ("cancelled", "completed") and time.monotonic() < until:
            time.sleep(0.05)
        if status != "running":
            self.failed[f"job: {status} after 60 s"] += 1
        return bool(status == "running")

    def _publish(self, took: list[float | None], ended: threading.Event) -> None:
        from evaluation.events.models import ReceivedTrajectory

        sent = asyncio.run(self._events(ended))
        rows, until = ReceivedTrajectory.objects.filter(trajectory_id__in=sent), time.monotonic() + 60
        while rows.count() < len(sent) and time.monotonic() < until:
            time.sleep(0.2)
        arrived = dict(rows.values_list("trajectory_id", "received_at"))
        took.extend((arrived[one] - at).total_seconds() if one in arrived else None for one, at in sent.items())

    async def _events(self, ended: threading.Event) -> dict[str, datetime]:
        import nats

        from evaluation.events.subjects import TRAJECTORY
        from tests.support.events import example

        client, sent = await nats.connect(self.needs["nats_url"]), {}
        while not ended.is_set():
            key = f"neighbour-{time.monotonic_ns()}"
            sent[key] = datetime.now(UTC)
            event = example(TRAJECTORY) | {"trajectory_id": key}
            await client.jetstream().publish(self.needs["subject"], json.dumps(event).encode(), timeout=30)
            await asyncio.sleep(PAUSE)
        await client.close()
        return sent


def p95(took: list[float | None]) -> float:
    good = [one for one in took if one is not None]
    return quantiles(good, n=20)[-1] if len(good) > 1 else sum(good) or float("nan")


def main(arguments: list[str]) -> int:
    folder = Path(tempfile.mkdtemp(prefix="neighbour-"))
    folder.chmod(0o711)
    port = free_port(0)
    command = [sys.executable, "-m", "tests.support.quick_server", "--latency", "0"]
    pipe = {"stdout": subprocess.PIPE, "text": True}
    with (
        subprocess.Popen(command, **pipe) as quick,  # type: ignore[call-overload]
        subprocess.Popen([*command, "--events", str(EVENTS)], **pipe) as streaming,  # type: ignore[call-overload]
    ):
        up = Up(folder / "data", "--port", str(port), EVENTS="1", TRAINING_JOBS_PER_USER="100")
        try:
            up.until("SELECT count(*) > 0 FROM django_migrations", START_SECONDS)
            while " ready after " not in up.tail():
                assert up.process.poll() is None, up.tail()
                time.sleep(0.5)
            urls = up.urls()
            os.environ.update(
                {name.upper(): urls[name] for name in ("database_url", "redis_url", "nats_url")},
                DATA_DIR=str(up.data),
                OUTBOUND_ALLOW="127.0.0.0/8",
            )
            services = [one.stdout.readline().strip() for one in (quick, streaming)]
            return measured(port, urls["nats_url"], services, arguments or list(DOORS))
        finally:
            up.stop()
            quick.terminate()
            streaming.terminate()
            shutil.rmtree(folder, ignore_errors=True)


def measured(port: int, nats_url: str, services: list[str], doors: list[str]) -> int:
    import django

    django.setup()
    row_scope.outside(row_scope.EVERYTHING)
    calm, noisy = (organization(service, nats_url) for service in services)
    work = Work(f"http://127.0.0.1:{port}", calm)
    with work.done():
        time.sleep(3)  # what is loaded by first requests
    table, losses = [], 0
    idle: dict[str, list[float | None]] = during(work, None, {})
    for door in doors:
        beside = during(work, door, noisy | {"port": port})
        for kind, took in beside.items():
            lost = sum(one is None for one in took)
            losses += lost
            table.append((door, kind, p95(idle[kind]), p95(took), len(took), lost))
        time.sleep(2)
    for door, kind, before, beside_p95, count, lost in table:
        ratio = beside_p95 / before
        print(
            f"| {door} | {kind} | {1e3 * before:.0f} | {1e3 * beside_p95:.0f} | {ratio:.1f} | {lost} of {count} |"
            + (" beyond" if ratio > RATIO else "")
        )
    return int(losses > 0)


def during(work: Work, door: str | None, needs: dict[str, Any]) -> dict[str, list[float | None]]:
    """The work beside a flood of a door; without one, on an idle site."""
    flood = None
    if door:
        command = [sys.executable, "-m", "tests.performance.neighbour_floods", door]
        flood = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert flood.stdin is not None
        flood.stdin.write(json.dumps(needs))
        flood.stdin.close()
        time.sleep(3)
    with work.done() as found:
        time.sleep(SECONDS)
    if flood:
        assert flood.poll() is None, f"the flood of {door} ended"
        flood.terminate()
        flood.wait()
        assert flood.stdout is not None
        print(
            f"{door}: requests of the flood that were answered, by status: {flood.stdout.read().strip()}",
            file=sys.stderr,
        )
    typical = {
        kind: f"{1e3 * median([one for one in took if one is not None] or [0]):.0f}" for kind, took in found.items()
    }
    print(f"{door or 'idle'}: medians in ms {typical}", file=sys.stderr)
    for what, count in work.failed.most_common():
        print(f"{door or 'idle'}: {count} times {what}", file=sys.stderr)
    work.failed.clear()
    return found


def organization(service: str, nats_url: str) -> dict[str, Any]:
    """Makes an organisation with an admin, an agent that is served, and keys."""
    from django.test import Client

    from agentcore_site.tenancy.actors import Actor
    from agentcore_site.tenancy.roles import Role
    from agentcore_site.tenancy.services import api_key_create
    from budgets.services import price_set
    from evaluation.events.models import EventPublisher
    from evaluation.events.subjects import RECEIVED, TRAJECTORY
    from experiences.agents.services.agents import agent_create
    from tests import factories
    from tests.performance.gateway import served
    from tests.performance.otlp import export
    from tests.support.playbooks import PRICE
    from training.services.runs import run_start

    member = factories.MembershipFactory(role=Role.ADMIN)
    admin, owner = Actor(member.user), member.organization
    price_set(admin, model="small", organization=owner, input_micros=PRICE[0], output_micros=PRICE[1])
    agent = agent_create(admin, name="gym", slug="agent-zero-main", environment="reasoning_gym")
    scopes = ["gateway:call", "training:view", "training:start", "training:cancel", "training:manage", "traces:write"]
    keys = [api_key_create(admin, name=name, scopes=scopes)[1] for name in ("work", "slow")]
    EventPublisher.objects.create(organization=owner)
    credential = factories.EventCredentialFactory(agent=None, organization=owner)
    browser = Client()
    browser.force_login(member.user)
    return {
        "model": served(admin, owner, "served", service),
        "key": keys[0],
        "slow_key": keys[1],
        "agent": str(agent.pk),
        "slug": agent.slug,
        "job": str(run_start(admin, agent=agent, config={"n_iterations": 2}).job_id),
        "cookie": browser.cookies["sessionid"].value,
        "nats_url": nats_url,
        "export": base64.b64encode(export(SPANS)).decode(),
        "subject": f"{RECEIVED}.{owner.pk}.{credential.pk}.{TRAJECTORY}",
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
