"""Consumers of the organisations' streams: one for each stream, as publishers come and go."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from nats.aio.client import Client
from nats.js.api import StreamInfo

from evaluation.events.consuming import EventConsumer
from evaluation.events.inboxes import REVIEW_SECONDS, InboxStreams, inboxes_there
from evaluation.events.interruptible_sleep import pause
from evaluation.events.subjects import InboxPlan

log = logging.getLogger(__name__)

POLL_SECONDS: Final = 1.0


class InboxConsumers:
    """One consumer for each organisation's stream, until ``stopping`` is set. Once an organisation has no publisher
    its stream is read to the end and deleted, so that its bytes are free."""

    def __init__(
        self,
        client: Client,
        streams: InboxStreams,
        group: asyncio.TaskGroup,
        stopping: asyncio.Event,
        threads: ThreadPoolExecutor | None = None,
    ) -> None:
        self._threads = threads
        self._client, self._streams, self._group, self._stopping = client, streams, group, stopping
        self._js = client.jetstream()
        self._running: dict[InboxPlan, asyncio.Event] = {}
        self._review_at = 0.0

    async def run(self) -> None:
        while not self._stopping.is_set():
            try:
                await self.once()
            except Exception as error:  # of the client, of sockets, and of the database
                log.warning("streams of organisations are not looked at: %s", error or type(error).__name__)
            await pause(self._stopping, POLL_SECONDS)
        for stop in self._running.values():
            stop.set()

    async def once(self) -> None:
        wanted = {InboxPlan(organization) for organization in await self._streams.ensure()}
        for organization in self._streams.made:
            self._start(InboxPlan(organization))
        if time.monotonic() < self._review_at:
            return
        self._review_at = time.monotonic() + REVIEW_SECONDS
        self._streams.forget()
        there = await inboxes_there(self._js)
        for plan in self._unneeded(there, wanted):
            await self._js.delete_stream(plan.name)
        for plan in self._running.keys() - there.keys() - wanted:  # another process deleted the stream
            self._running.pop(plan).set()

    def _unneeded(self, there: dict[InboxPlan, StreamInfo], wanted: set[InboxPlan]) -> Iterator[InboxPlan]:
        """Empty streams without publishers. Those that still hold messages are read."""
        for plan in there.keys() - wanted:
            if there[plan].state.messages:
                self._start(plan)
            else:
                if (stop := self._running.pop(plan, None)) is not None:
                    stop.set()
                yield plan

    def _start(self, plan: InboxPlan) -> None:
        if plan not in self._running:
            self._running[plan] = asyncio.Event()
            consumer = EventConsumer(self._client, plan, self._running[plan], threads=self._threads)
            self._group.create_task(consumer.run())
