"""F4: what an organisation's events wait while a publisher of another one floods the server, and what gets lost."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from statistics import median
from typing import Final

from django.conf import settings
from django.db import connection
from nats.js.errors import NotFoundError

from evaluation.events.broker import connect
from evaluation.events.models import DeadLetter, ReceivedTrajectory
from evaluation.events.subjects import RECEIVED, TRAJECTORY, InboxPlan
from tests.factories import AgentFactory, EventCredentialFactory
from tests.performance.events import looping
from tests.performance.table import Figure, at_least, at_most
from tests.support.events import example
from tests.support.workers import eventually

EVENTS: Final = 100  # of the neighbour, with and without the flood
PAUSE: Final = 0.05
FLOOD: Final = """
import asyncio, os, sys, nats
os.nice(19)  # its own work would be on a machine of its own
async def main():
    client = await nats.connect(sys.argv[1])
    while True:
        for _ in range(500):
            await client.publish(sys.argv[2], b"flood")
        await client.flush()
asyncio.run(main())
"""


def flooded() -> list[Figure]:
    """Messages of five bytes, as fast as a program can send them, beside a neighbour that sends 20 a second."""
    calm, noisy = AgentFactory(slug="agent-zero-main"), AgentFactory(slug="agent-zero-main")
    subjects = [
        f"{RECEIVED}.{one.organization_id}.{EventCredentialFactory(agent=one, organization=one.organization).pk}"
        for one in (calm, noisy)
    ]
    inboxes = [InboxPlan(one.organization_id).name for one in (calm, noisy)]
    connection.close()
    with looping("consumers") as consumers:
        asyncio.run(_wait(inboxes))
        before = _delays(subjects[0], "without")
        program = [sys.executable, "-c", FLOOD, settings.NATS_URL, f"{subjects[1]}.{TRAJECTORY}"]
        with subprocess.Popen(program) as flood:
            time.sleep(3)
            during = _delays(subjects[0], "with")
            flood.kill()
        assert consumers.poll() is None, "the consumers stopped"
    letters = DeadLetter.objects.filter(organization_id=noisy.organization_id).count()
    alone, beside = median(before), median(during)
    kept = 100 * (len(before) + len(during)) / (2 * EVENTS)
    what = f"median delay of a neighbour's event beside a flood ({beside:.0f} ms), to that without ({alone:.0f} ms)"
    return [
        at_least("F4", f"of {2 * EVENTS} events of a neighbour received", kept, 100, "%", digits=0),
        at_most("F4", what, beside / alone, 2, "times"),
        at_most("F4", "dead letters that the flood left", letters, 1.05 * settings.DEAD_LETTERS_KEPT, "rows", digits=0),
    ]


def _delays(subject: str, name: str) -> list[float]:
    """Milliseconds from each event's sending to its row, of those that became one."""
    sent = asyncio.run(_send(f"{subject}.{TRAJECTORY}", name))
    rows = ReceivedTrajectory.objects.filter(trajectory_id__in=sent)
    eventually(lambda: rows.count() == len(sent), seconds=60)
    return [1e3 * (at - sent[key]).total_seconds() for key, at in rows.values_list("trajectory_id", "received_at")]


async def _send(subject: str, name: str) -> dict[str, datetime]:
    client, sent = await connect("bench"), {}
    js = client.jetstream()
    for n in range(EVENTS):
        key = f"{name}-{n}"
        sent[key] = datetime.now(UTC)
        await js.publish(subject, json.dumps(example(TRAJECTORY) | {"trajectory_id": key}).encode())
        await asyncio.sleep(PAUSE)
    await client.close()
    return sent


async def _wait(inboxes: list[str]) -> None:
    client = await connect("bench")
    async with asyncio.timeout(60):
        for name in inboxes:
            while True:
                try:
                    await client.jetstream().stream_info(name)
                    break
                except NotFoundError:
                    await asyncio.sleep(0.1)
    await client.close()
