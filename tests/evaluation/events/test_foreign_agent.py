"""The agent elsewhere of the docs, word for word, in a process of its own."""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from nats.aio.client import Client
from nats.js import JetStreamContext

from agentcore_site.env import ROOT
from agentcore_site.tenancy.actors import Actor
from evaluation.events.consuming import EventConsumer
from evaluation.events.inboxes import inboxes_there
from evaluation.events.models import DeadLetter, TrainingRequest
from evaluation.events.relay import Relay
from evaluation.events.subjects import STREAMS, InboxPlan
from experiences.models import TrajectoryRecord
from tests import factories
from tests.evaluation.events.conftest import Bus
from tests.evaluation.events.test_receiving import connected, publishing

pytestmark = pytest.mark.django_db


def test_the_agent_of_the_docs_is_received_and_gets_the_status_of_its_training(
    bus: Bus, adam: Any, olivia: Any, published: Any
) -> None:
    agent = factories.AgentFactory(organization=published, created_by=olivia, slug="agent-zero-main")
    publisher = publishing(bus, Actor(adam, interface="test"), agent)

    async def talk(ours: Client, js: JetStreamContext) -> str:
        await (await connected(publisher)).close()
        stopping = asyncio.Event()
        loop = [EventConsumer(ours, plan, stopping, wait=0.05) for plan in (*STREAMS, *await inboxes_there(js))]
        program = await asyncio.create_subprocess_exec(
            sys.executable,
            str(ROOT / "docs/events/foreign_agent.py"),
            env=os.environ | {"NATS_URL": publisher.url},
            stdout=asyncio.subprocess.PIPE,
        )
        received = True
        while program.returncode is None or received:  # it may end before its first event was taken
            received = any([await part.once() for part in (*loop, Relay(ours, stopping))])
            await asyncio.sleep(0.05)
        assert program.stdout is not None
        return (await program.stdout.read()).decode()

    inbox = InboxPlan(published.pk).name
    assert bus.speak(talk).splitlines() == [
        f"trajectory: message 1 of {inbox}",
        f"reward: message 2 of {inbox}",
        f"training.request: message 3 of {inbox}",
        "training: queued",
    ]
    row = TrajectoryRecord.objects.get(agent_id=agent.pk, purpose="received")
    assert (row.query, row.reward) == ("What is 6 times 7?", 1.0)
    assert timezone.now() - row.created_at < timedelta(minutes=10)  # its event has no time: the time of arrival counts
    assert TrainingRequest.objects.get().mode == "here"
    assert not DeadLetter.objects.exists()
