"""The relay: takes what waits in the outbox, publishes it, and settles it once the stream has it.

A row is taken by a lease of seconds and not by a lock that is held while the network is waited for. A relay that dies
between the stream's answer and the settling sends its rows again, by the same ids, which the stream knows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from asgiref.sync import sync_to_async
from django.db import connection
from django.db.models import QuerySet
from django.utils import timezone
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js import JetStreamContext

from agentcore_site.lib.async_db import briefly
from agentcore_site.lib.database import trouble_in
from events import metrics
from events.models import OutboxEvent
from events.pausing import pause
from events.publishing import LeasedEvent, OutgoingMessage, loaded, messages_of

log = logging.getLogger(__name__)

BATCH: Final = 500
LEASE_SECONDS: Final = 30
IDLE_SECONDS: Final = 0.03  # between two looks at an outbox that is empty
TROUBLE_SECONDS: Final = 1.0
ACK_SECONDS: Final = 10.0
KEPT: Final = timedelta(days=1)
OURS: Final = "AgentCore-Message"  # a header of what we said ourselves, on plain subjects

MESSAGE_ID: Final = "Nats-Msg-Id"


def batch_take(limit: int = BATCH) -> list[LeasedEvent]:
    """Leases the oldest rows that no other relay has."""
    with connection.cursor() as cursor:
        cursor.execute(
            "WITH due AS (SELECT id FROM events_outboxevent WHERE settled_at IS NULL AND try_after <= clock_timestamp()"
            "   ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED)"
            " UPDATE events_outboxevent o SET tries = LEAST(o.tries + 1, 30000),"
            "   try_after = clock_timestamp() + make_interval(secs => %s)"
            " FROM due WHERE o.id = due.id"
            " RETURNING o.id, o.message_id, o.organization_id, o.kind, o.key, o.month, o.data, o.created_at",
            [limit, LEASE_SECONDS],
        )
        found = [LeasedEvent(*row)._replace(data=loaded(row[6])) for row in cursor.fetchall()]
    return sorted(found)


def batch_settle(sent: Sequence[int], withheld: Sequence[OutgoingMessage]) -> None:
    now = timezone.now()
    if sent:
        OutboxEvent.objects.filter(id__in=sent).update(settled_at=now)
    for one in withheld:
        OutboxEvent.objects.filter(id=one.row).update(settled_at=now, withheld=one.withheld[:60])


def batch_return(ids: Sequence[int]) -> None:
    """They were not sent: another try in a moment, and not at the end of the lease."""
    if ids:
        OutboxEvent.objects.filter(id__in=ids).update(try_after=timezone.now() + timedelta(seconds=TROUBLE_SECONDS))


def outbox_forget() -> int:
    """Deletes what was settled long ago. Returns how many rows."""
    old: QuerySet[OutboxEvent] = OutboxEvent.objects.filter(settled_at__lt=timezone.now() - KEPT)
    deleted = 0
    while ids := list(old.order_by("id").values_list("id", flat=True)[:10_000]):
        deleted += OutboxEvent.objects.filter(id__in=ids)._raw_delete("default")
    return deleted


class Relay:
    """Publishes until ``stopping`` is set; survives NATS and the database away."""

    def __init__(self, client: Client, stopping: asyncio.Event) -> None:
        self._client, self._stopping = client, stopping
        self._js: JetStreamContext = client.jetstream(publish_async_max_pending=4 * BATCH)

    async def run(self) -> None:
        taken: asyncio.Task[list[OutgoingMessage]] | None = None
        while not self._stopping.is_set():
            try:
                messages = await (taken or self._take())
                taken = None
                if not messages:
                    await pause(self._stopping, IDLE_SECONDS)
                    continue
                # The next batch is read while the stream answers to this one.
                taken = asyncio.create_task(self._take()) if len(messages) == BATCH else None
                await self._publish(messages)
            except Exception as error:
                taken = None
                if trouble_in(error) is None and not isinstance(error, NatsError | OSError | TimeoutError):
                    log.exception("the relay goes on after an error")
                else:
                    log.warning("the relay waits: %s", error or type(error).__name__)
                await pause(self._stopping, TROUBLE_SECONDS)
        if taken is not None:
            await self._return([one.row for one in await taken])

    async def once(self) -> int:
        """Publishes one batch. Returns how many rows it had."""
        messages = await self._take()
        await self._publish(messages)
        return len(messages)

    async def _take(self) -> list[OutgoingMessage]:
        if not self._client.is_connected:
            return []
        return await sync_to_async(_read, thread_sensitive=True)()

    async def _publish(self, messages: Sequence[OutgoingMessage]) -> None:
        withheld = [one for one in messages if one.withheld]
        most = self._client.max_payload
        large = [one for one in messages if len(one.body) > most]
        sent: list[int] = []
        failed: list[int] = []
        waiting = {}
        for one in messages:
            if one.withheld or len(one.body) > most:
                continue
            headers = {MESSAGE_ID: one.message_id, OURS: "1"}
            waiting[one] = await self._js.publish_async(one.subject, one.body, headers=headers)
        if waiting:
            await asyncio.wait(waiting.values(), timeout=ACK_SECONDS)
        for one, answer in waiting.items():
            done = answer.done() and not answer.cancelled() and answer.exception() is None
            (sent if done else failed).append(one.row)
            if not answer.done():
                answer.cancel()
            elif not done and not answer.cancelled():
                log.warning("a message was not stored: %s", answer.exception())
        too_large = [
            OutgoingMessage(one.row, "", "", b"", f"it has {len(one.body):,} bytes, and NATS takes {most:,}")
            for one in large
        ]
        await briefly(batch_settle)(sent, [*withheld, *too_large])
        metrics.published.inc(len(sent))
        await self._return(failed)

    async def _return(self, ids: Sequence[int]) -> None:
        await briefly(batch_return)(ids)


def _read() -> list[OutgoingMessage]:
    return messages_of(batch_take())
