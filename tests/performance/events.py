"""P13: from the outbox to the stream, and what it costs those whose work is noted. A real server with files."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median, quantiles
from typing import Final

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Count
from nats.js import JetStreamContext
from nats.js.errors import NotFoundError

from agentcore_site.embedded.nats import NatsServer
from agentcore_site.embedded.ports import free_port
from agentcore_site.embedded.supervisor import Process, Supervisor
from agentcore_site.ids import uuid7
from agentcore_site.lib.service_paths import place_for
from evaluation.events.broker import connect, streams_ensure
from evaluation.events.consuming import DURABLE
from evaluation.events.models import DeadLetter, EventPublisher, OutboxEvent, ReceivedTrajectory
from evaluation.events.subjects import RECEIVED, STREAMS
from experiences.trajectories import storage
from tests.factories import AgentFactory, EventCredentialFactory
from tests.performance.storage import BATCH, MONTH, emptied, trajectories
from tests.performance.table import Figure, at_least, at_most
from tests.support.bad_events import bad_events
from tests.support.owner import as_owner
from tests.support.workers import Fleet, eventually

RATE: Final = 1_000  # events/s, below which the delay is measured
SECONDS: Final = 10
ROUNDS: Final = 7


@contextmanager
def server() -> Iterator[None]:
    """Started for these figures, with its data on this disk."""
    with tempfile.TemporaryDirectory(prefix="agentcore-bench-") as name:
        folder = Path(name)
        os.chmod(folder, 0o711)
        for one in ("secrets", "log"):
            (folder / one).mkdir()
        nats = NatsServer(place_for(folder), folder / "secrets", free_port(0))
        nats.prepare()
        supervisor = Supervisor(folder / "log", print)
        process = Process(
            nats.name, nats.command(), nats.ready, user=nats.place.user(nats.name), stop_signal=signal.SIGTERM
        )
        supervisor.start(process)
        settings.NATS_URL = nats.url()
        try:
            yield
        finally:
            supervisor.stop()


def scope(agent: object) -> storage.TrajectoryScope:
    return storage.TrajectoryScope(uuid7(), agent.organization_id, agent.pk, MONTH)  # type: ignore[attr-defined]


def forgotten() -> None:
    emptied()
    with as_owner(), connection.cursor() as cursor:
        cursor.execute("TRUNCATE events_outboxevent")


def written(whose: storage.TrajectoryScope, rows: list[object], size: int = BATCH) -> float:
    """Seconds that it took a producer to store them."""
    began = time.perf_counter()
    for first in range(0, len(rows), size):
        with transaction.atomic():
            storage.trajectories_write(whose, rows[first : first + size])  # type: ignore[arg-type]
    return time.perf_counter() - began


@contextmanager
def looping(part: str) -> Iterator[subprocess.Popen[bytes]]:
    """The relay or the consumers as they are shipped, in a process of their own."""
    fleet = Fleet()
    with server():
        try:
            yield fleet.feedback_loop("--only", part, NATS_URL=settings.NATS_URL)
        finally:
            fleet.stop()


def settled(rows: int) -> bool:
    return OutboxEvent.objects.exclude(settled_at=None).count() >= rows


def relayed() -> list[Figure]:
    """A backlog of trajectories with their rewards, which is how an outage ends."""
    with transaction.atomic():
        storage.partition_ensure(MONTH)
    rows, agent = trajectories(), AgentFactory()
    EventPublisher.objects.create(organization=agent.organization)
    forgotten()
    written(scope(agent), rows)
    waiting = OutboxEvent.objects.count()
    connection.close()
    with looping("relay"):
        eventually(lambda: settled(waiting), every=0.5)
    edges = OutboxEvent.objects.order_by("settled_at").values_list("settled_at", flat=True)
    first, last = edges.first(), edges.last()
    # The first batch is settled when the clock starts.
    done = OutboxEvent.objects.filter(settled_at__gt=first).count()
    rate = done / (last - first).total_seconds()  # type: ignore[operator]
    forgotten()
    return [at_least("P13", f"events from the outbox to the stream ({waiting:,})", rate, 5_000, "events/s", digits=0)]


def latency() -> list[Figure]:
    """From the moment that it was noted to the one at which the stream had it, at a steady rate."""
    rows, agent = trajectories()[: RATE * SECONDS // 2], AgentFactory()
    EventPublisher.objects.create(organization=agent.organization)
    forgotten()
    with looping("relay"):
        whose, size = scope(agent), RATE // 2 // 20
        written(whose, rows[:size])  # once the relay is there, the clock starts
        eventually(lambda: settled(2 * size))
        OutboxEvent.objects.all().delete()
        began = time.perf_counter()
        for n, first in enumerate(range(size, len(rows), size)):
            time.sleep(max(0.0, began + n / 20 - time.perf_counter()))
            with transaction.atomic():
                storage.trajectories_write(whose, rows[first : first + size])
        eventually(lambda: settled(2 * (len(rows) - size)))
    delays = [
        1e3 * (settled - created).total_seconds()
        for created, settled in OutboxEvent.objects.values_list("created_at", "settled_at")
        if settled is not None
    ]
    forgotten()
    p95 = quantiles(delays, n=20)[-1]
    return [at_most("P13", f"p95 of that at {RATE:,} events/s (median {median(delays):.0f} ms)", p95, 100, "ms")]


def poisoned() -> list[Figure]:
    """A hundred thousand bad events (``BAD_EVENTS``): each is a dead letter with its reason, or harmless. One in twenty
    comes by the subject of a publisher that is not there, or is another organisation's."""
    n = int(os.environ.get("BAD_EVENTS", "100000"))
    agent = AgentFactory(slug="agent-zero-main")
    credential = EventCredentialFactory(agent=None, organization=agent.organization)
    other = EventCredentialFactory()
    mine = f"{RECEIVED}.{agent.organization_id}.{credential.pk}"
    wrong = [
        f"{RECEIVED}.{agent.organization_id}.{other.pk}",
        f"{RECEIVED}.{other.organization_id}.{credential.pk}",
        f"{RECEIVED}.{uuid7()}.{uuid7()}",
    ]
    connection.close()
    os.environ["DEAD_LETTERS_KEPT"] = "1000000"  # all of them are counted
    with looping("consumers") as consumers:
        seconds, left = asyncio.run(_poison(n, mine, wrong))
        assert consumers.poll() is None, "the consumers stopped"
    reasons = dict(DeadLetter.objects.values_list("reason").annotate(Count("id")))
    summary = ", ".join(f"{count:,} {reason}" for reason, count in sorted(reasons.items()))
    rows = ReceivedTrajectory.objects.count()
    what = f"of {n:,} bad events, {n / seconds:,.0f}/s, ended without a fault of ours: {rows:,} trajectories; {summary}"
    return [at_least("F3", what, 100 * (n - left - reasons.get("failed", 0)) / n, 100, "%")]


async def _poison(n: int, mine: str, wrong: list[str]) -> tuple[float, int]:
    """Seconds, and how many were left unhandled."""
    client = await connect("bench")
    js = client.jetstream(publish_async_max_pending=1_000)
    await streams_ensure(js)
    began = time.perf_counter()
    for sent, (subject, body) in enumerate(bad_events(n, seed=1), 1):
        prefix = wrong[sent // 20 % len(wrong)] if sent % 20 == 0 else mine
        await js.publish_async(f"{prefix}.{subject}", body)
        if sent % 5_000 == 0 or sent == n:  # within what the streams keep
            await js.publish_async_completed()
            left, ends = n, time.perf_counter() + 300
            while left and time.perf_counter() < ends:
                await asyncio.sleep(0.2)
                left = await _left(js)
            print(f"{sent:,} of {n:,}, {time.perf_counter() - began:.0f} s", file=sys.stderr)
    seconds = time.perf_counter() - began
    await client.close()
    return seconds, left


async def _left(js: JetStreamContext) -> int:
    try:
        infos = [await js.consumer_info(plan.name, DURABLE) for plan in STREAMS]
    except NotFoundError:
        return 1  # the consumers are not there yet
    return sum((one.num_pending or 0) + (one.num_ack_pending or 0) for one in infos)


def producers() -> list[Figure]:
    """Storing trajectories with and without their being noted, in turns: the rollouts themselves are left out, so that
    what is printed is the most that a producer can lose; and beside it what a job loses whose rollouts take 1 ms."""
    rows = trajectories()
    publishing, silent = AgentFactory(), AgentFactory()
    EventPublisher.objects.create(organization=publishing.organization)
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(2 * ROUNDS):
        forgotten()
        noted = bool(turn % 2)
        fresh = [replace(one) for one in rows]
        seconds[noted].append(written(scope(publishing if noted else silent), fresh))  # type: ignore[arg-type]
    forgotten()
    with_events, without = median(seconds[True]), median(seconds[False])
    stored = 100 * (with_events - without) / with_events
    whole = 100 * (with_events - without) / (with_events + len(rows) * 1e-3)
    what = f"what producers lose, of rollouts of 1 ms and storing them (of storing alone: {stored:.0f} %)"
    return [at_most("P13", what, max(whole, 0.0), 5, "%")]
