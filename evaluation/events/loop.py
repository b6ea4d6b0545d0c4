"""The feedback loop: the relay and the consumers in one process, until it is stopped."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from nats.aio.client import Client

from agentcore_site.lib import gc_freeze
from agentcore_site.lib.async_db import lasting
from agentcore_site.lib.heartbeats import PARTS, heartbeats_send
from evaluation.events.account_sync import accounts_keep
from evaluation.events.broker import connect, streams_ensure
from evaluation.events.consuming import EventConsumer
from evaluation.events.inbox_consumers import InboxConsumers
from evaluation.events.inboxes import InboxStreams
from evaluation.events.interruptible_sleep import pause
from evaluation.events.relay import Relay
from evaluation.events.stream_erasure import streams_erase
from evaluation.events.subjects import STREAMS

log = logging.getLogger(__name__)

BEAT_SECONDS: Final = 2.0
INBOX_THREADS: Final = 4  # and connections to the database


async def feedback_loop(stopping: asyncio.Event, parts: tuple[str, ...] = PARTS) -> None:
    """Runs the parts. Waits until NATS is available at the start."""
    client = await _connected(stopping)
    if client is None:
        return
    try:
        await _streams(client, stopping)
        gc_freeze.settle()
        inboxes = InboxStreams(client.jetstream())
        work: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "relay": lambda: Relay(client, stopping).run(),
            "consumers": lambda: _consumers(client, inboxes, stopping),
        }
        async with asyncio.TaskGroup() as group:
            for part in parts:
                group.create_task(work[part]())
            if "relay" in parts:
                group.create_task(streams_erase(client.jetstream(), stopping))
            group.create_task(accounts_keep(inboxes, stopping))
            group.create_task(_beats(stopping, parts))
    finally:
        await client.close()


async def _consumers(client: Client, inboxes: InboxStreams, stopping: asyncio.Event) -> None:
    # An organisation whose work takes long occupies one of them.
    with ThreadPoolExecutor(INBOX_THREADS, "inbox") as threads:
        async with asyncio.TaskGroup() as group:
            group.create_task(InboxConsumers(client, inboxes, group, stopping, threads).run())
            for plan in STREAMS:
                group.create_task(EventConsumer(client, plan, stopping).run())


async def _connected(stopping: asyncio.Event) -> Client | None:
    while not stopping.is_set():
        try:
            return await connect("feedback_loop")
        except Exception as error:  # of the client, of sockets or of names
            log.warning("NATS is away: %s", error or type(error).__name__)
            await pause(stopping, 1.0)
    return None


async def _streams(client: Client, stopping: asyncio.Event) -> None:
    """Makes the streams. A cluster may answer before it has a leader."""
    while not stopping.is_set():
        try:
            await streams_ensure(client.jetstream())
            return
        except Exception as error:
            log.warning("the streams can't be made yet: %s", error or type(error).__name__)
            await pause(stopping, 1.0)


async def _beats(stopping: asyncio.Event, parts: tuple[str, ...]) -> None:
    while not stopping.is_set():
        await lasting(heartbeats_send)(parts)
        await pause(stopping, BEAT_SECONDS)
