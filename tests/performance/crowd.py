"""500 jobs and 200 viewers on two workers and one web process: what a question of status costs then, whether every job
gets its turn, and how many messages lie in the broker."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass, field
from statistics import quantiles
from typing import Any, Final

import httpx
from django.db import connection
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from agentcore_site.jobs.lifecycle import free
from agentcore_site.jobs.models import ENDED, Job, Status
from agentcore_site.jobs.wakeup import messages_waiting
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.roles import Role
from agentcore_site.tenancy.services import api_key_create
from tests import factories
from tests.performance.jobs import NO_STOP, people, status_ask
from tests.performance.table import Figure, at_least, at_most
from tests.support.running import SMALL_POOL
from tests.support.workers import Fleet, eventually
from training.services.runs import run_start

JOBS, VIEWERS, PEOPLE, WORKERS = 500, 200, 5, 2
ALONE_ASKED: Final = 300
ROUNDS: Final = 3  # of all jobs, that are watched
LONGEST: Final = 600.0  # seconds that they may take
SHIPPED: Final = {"JOB_SWEEP_SECONDS": "5"}
ENDLESS: Final = {
    "n_iterations": 10_000,
    "eval_interval": 10_000,
    "eval_samples": 1,
    "batch_size": 1,
    "n_trajectories_per_query": 2,
}


def crowd() -> list[Figure]:
    actor, home = people()
    _, key = api_key_create(actor, name="bench", scopes=["training:view"])
    keys = [api_key_create(one, name="viewer", scopes=["training:view"])[1] for one in _viewers(home)]
    fleet = Fleet()
    ids: list[Any] = []
    alone: list[float] = []
    crowded: list[float] = []
    turns, bells = Turns(), Bells()
    try:
        port = fleet.web()
        for _ in range(WORKERS):
            fleet.worker(**SHIPPED)
        fleet.beat(**SHIPPED)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {key}"}) as client:
            ids.append(_begun(actor, home, 0))
            eventually(lambda: Job.objects.get(id=ids[0]).progress > 0, why="the first progress")
            while len(alone) < ALONE_ASKED:
                status_ask(client, ids[0], alone)
                time.sleep(0.05)
            ids += [_begun(actor, home, n) for n in range(1, JOBS)]
            began = time.monotonic()
            with Viewers(port, keys, ids) as viewers:
                eventually(lambda: turns.check(ids) == JOBS, seconds=LONGEST, every=0.2, why="a turn of each job")
                first_round = time.monotonic() - began
                turns.begin()
                asked = checked = 0.0
                while turns.rounds < ROUNDS and time.monotonic() - began < LONGEST:
                    status_ask(client, ids[len(crowded) % JOBS], crowded)
                    if time.monotonic() - asked > 1:
                        asked = time.monotonic()
                        bells.check()
                    if time.monotonic() - checked > 0.2:
                        checked = time.monotonic()
                        turns.check(ids)
                    time.sleep(0.05)
        shown = _jobs_to_do()
        active = Job.objects.exclude(status__in=ENDED).count()
    finally:
        fleet.stop()
        Job.objects.filter(id__in=ids).update(status=Status.CANCELLED, lease_until=None)
    before, after = quantiles(alone, n=20)[-1], quantiles(crowded, n=20)[-1]
    ideal = turns.seconds / turns.rounds
    return [
        at_most(
            "14",
            f"get_status, p95 with {JOBS} jobs and {VIEWERS} viewers ({after:.0f} ms of {len(crowded)}) to one job's"
            f" ({before:.0f} ms of {len(alone)})",
            after / before,
            3,
            "x",
        ),
        at_most(
            "14",
            f"longest wait of a job for its turn, of {turns.rounds:.1f} rounds, to the ideal round ({ideal:.0f} s; the"
            f" first took {first_round:.0f} s)",
            turns.longest / ideal,
            2,
            "x",
        ),
        at_most(
            "14", "messages in the broker above waiting jobs and workers, at most", bells.above, 0.999, "", digits=0
        ),
        at_least("14", "viewers that received an update in the crowd", viewers.updated, VIEWERS, "viewers", digits=0),
        at_most(
            "14", f"jobs to do by KEDA's query, less those in rows ({active})", abs(shown - active), 0.999, "", digits=0
        ),
    ]


def _begun(actor: Actor, home: Any, n: int) -> Any:
    """A job of the smallest iterations that does not end by itself, with few selection queries: its first turn looks at
    them all."""
    agent = factories.AgentFactory(organization=home, created_by=actor.user, name=f"crowd {n}", slug=f"crowd-{n}")
    config = NO_STOP | ENDLESS | {"seed": n}
    return run_start(actor, agent=agent, environment_options=SMALL_POOL, config=config).job_id


def _viewers(home: Any) -> list[Actor]:
    found = []
    for n in range(PEOPLE):
        user = factories.UserFactory(username=f"viewer-{n}")
        factories.MembershipFactory(organization=home, user=user, role=Role.DEVELOPER)
        found.append(Actor(user))
    return found


def _jobs_to_do() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT jobs_to_do()")
        return int(cursor.fetchone()[0])


@dataclass
class Turns:
    """Each claim of a job counts up its attempt: seen five times a second."""

    attempts: dict[Any, int] = field(default_factory=dict)
    last: dict[Any, float] = field(default_factory=dict)
    longest: float = 0.0
    count: int = 0
    began: float = 0.0
    now: float = 0.0

    def begin(self) -> None:
        self.began = self.now = time.monotonic()
        self.longest, self.count = 0.0, 0

    def check(self, ids: list[Any]) -> int:
        """Notes who had a turn since the last check. Returns how many had one at all."""
        self.now = time.monotonic()
        for job, attempt in Job.objects.filter(id__in=ids).values_list("id", "attempt"):
            if attempt != self.attempts.get(job, 0):
                self.count += attempt - self.attempts.get(job, 0)
                self.longest = max(self.longest, self.now - self.last.get(job, self.now))
                self.attempts[job], self.last[job] = attempt, self.now
        if self.began:  # who still waits counts as well
            self.longest = max(self.longest, self.now - min(self.last.values()))
        return len(self.last)

    @property
    def rounds(self) -> float:
        return self.count / JOBS

    @property
    def seconds(self) -> float:
        return self.now - self.began


@dataclass
class Bells:
    above: float = 0.0

    def check(self) -> None:
        messages = messages_waiting()
        if messages is not None:
            self.above = max(self.above, messages - free().count() - WORKERS)


class Viewers:
    """Sockets in a thread of their own, that read what comes."""

    def __init__(self, port: int, keys: list[str], ids: list[Any]) -> None:
        self._where = [
            (f"ws://127.0.0.1:{port}/ws/jobs/{ids[n * len(ids) // VIEWERS]}/", keys[n % len(keys)])
            for n in range(VIEWERS)
        ]
        self._updated = [False] * VIEWERS
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def updated(self) -> int:
        return sum(self._updated)

    def __enter__(self) -> Viewers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(30)

    def _run(self) -> None:
        asyncio.run(self._all())  # which waits for the sockets' own tasks as well

    async def _all(self) -> None:
        reading = [asyncio.create_task(self._one(n)) for n in range(VIEWERS)]
        while not self._over.is_set():
            await asyncio.sleep(0.5)
        for one in reading:
            one.cancel()
        await asyncio.gather(*reading, return_exceptions=True)

    async def _one(self, n: int) -> None:
        where, key = self._where[n]
        after = 0
        while True:  # as pages do, it connects again
            try:
                headers = {"Authorization": f"Bearer {key}"}
                async with connect(f"{where}?after={after}", additional_headers=headers, open_timeout=60) as socket:
                    async for _ in socket:
                        self._updated[n] = True
            except (ConnectionClosed, OSError, TimeoutError):
                await asyncio.sleep(1)
