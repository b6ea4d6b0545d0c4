"""Streams of what publishers send: one of each organisation, so that only the organisation that floods is refused.

A message leaves its stream once it was taken: the limits are those of a backlog. A stream's bytes are reserved when it
is made, so that no other organisation can use them up.
"""

from __future__ import annotations

import logging
import time
from typing import Final
from uuid import UUID

from django.conf import settings
from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig, StreamInfo
from nats.js.errors import APIError, NotFoundError, ServiceUnavailableError

from agentcore_site.lib.async_db import lasting
from evaluation.events import metrics
from evaluation.events.selectors import publishing_organizations
from evaluation.events.subjects import DAY, InboxPlan

log = logging.getLogger(__name__)

MOST_MESSAGES: Final = 50_000
MAX_AGE: Final = 30 * DAY
DUPLICATES_SECONDS: Final = 120.0  # ids are received once in any case
REVIEW_SECONDS: Final = 60.0  # between two looks at all streams, and before a refused one is tried again
PAGE: Final = 256  # streams of one answer
NO_RESOURCES: Final = 10_023  # the server's error code: no room is left


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
        except APIError as error:
            if isinstance(error, ServiceUnavailableError) and error.err_code != NO_RESOURCES:
                log.warning("the stream of organisation %s is made later: %s", organization, error)  # no leader yet
                return
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
