"""Streams of what publishers send: one of each organisation, so that only the organisation that floods is refused.

A message leaves its stream once it was taken: the limits are those of a backlog. A stream's bytes are reserved when it
is made, so that no other organisation can use them up.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from uuid import UUID

from django.conf import settings
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig, StreamInfo
from nats.js.errors import APIError, NotFoundError

from agentcore_site.lib.async_db import lasting
from evaluation.events import metrics
from evaluation.events.consuming import EventConsumer
from evaluation.events.interruptible_sleep import pause
from evaluation.events.selectors import publishing_organizations
from evaluation.events.subjects import DAY, InboxPlan

log = logging.getLogger(__name__)

MOST_MESSAGES: Final = 50_000
MAX_AGE: Final = 30 * DAY
DUPLICATES_SECONDS: Final = 120.0  # ids are received once in any case
POLL_SECONDS: Final = 1.0
REVIEW_SECONDS: Final = 60.0  # between two looks at all streams, and before a refused one is tried again
PAGE: Final = 256  # streams of one answer


def inbox_config(plan: InboxPlan) -> StreamConfig:
    return StreamConfig(
        name=plan.name,
        subjects=plan.subjects,
        retention=RetentionPolicy.WORK_QUEUE,
        discard=DiscardPolicy.NEW,
        max_msgs=MOST_MESSAGES,
        max_bytes=min(settings.NATS_INBOX_MB, settings.NATS_STORE_MB // 8) * 2**20,
        max_age=MAX_AGE,
        storage=StorageType.FILE,
        num_replicas=settings.NATS_REPLICAS,
        duplicate_window=DUPLICATES_SECONDS,
    )


async def inboxes_there(js: JetStreamContext) -> dict[InboxPlan, StreamInfo]:
    """The organisations' streams that the server has."""
    found: list[StreamInfo] = []
    while True:
        page = await js.streams_info(offset=len(found))
        found += page
        if len(page) < PAGE:
            break
    plans = ((InboxPlan.named(one.config.name or ""), one) for one in found)
    return {plan: one for plan, one in plans if plan is not None}


class InboxStreams:
    """Makes the streams of organisations that have publishers. One for each process."""

    def __init__(self, js: JetStreamContext) -> None:
        self._js = js
        self.made: set[UUID] = set()
        self._refused: dict[UUID, float] = {}  # until when they are not tried again

    async def ensure(self) -> set[UUID]:
        """Makes missing streams. Returns the organisations that have publishers now."""
        wanted: set[UUID] = await lasting(publishing_organizations)()
        now = time.monotonic()
        for organization in wanted - self.made:
            if self._refused.get(organization, 0.0) < now:
                await self._make(organization)
        metrics.inboxes_refused.set(len(self._refused))
        return wanted

    def forget(self) -> None:
        """The next ``ensure`` looks at each stream again."""
        self.made.clear()

    async def _make(self, organization: UUID) -> None:
        config = inbox_config(InboxPlan(organization))
        try:
            try:
                await self._js.update_stream(config)
            except NotFoundError:
                await self._js.add_stream(config)
        except APIError as error:  # such as: no room is left for one more
            self._refused[organization] = time.monotonic() + REVIEW_SECONDS
            log.error(
                "organisation %s can publish no events: NATS makes no stream for it (%s). NATS_STORE_MB and"
                " NATS_INBOX_MB say how many there can be.",
                organization,
                error.description,
            )
        else:
            self.made.add(organization)
            self._refused.pop(organization, None)


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
