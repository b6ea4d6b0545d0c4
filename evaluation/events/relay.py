"""The relay: leases pending rows of the outbox, publishes them, and settles them once the stream has them.
A row is leased for seconds; no lock is held while the network is waited for. A relay that dies between the stream's
answer and the settling sends its rows again with the same ids, which the stream recognises.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from django.db import connection
from django.db.models.functions import Now
from django.utils import timezone
from nats.aio.client import Client
from nats.errors import Error as NatsError

from agentcore_site.lib.async_db import lasting
from agentcore_site.lib.database import trouble_in
from evaluation.events import metrics
from evaluation.events.interruptible_sleep import pause
from evaluation.events.leased import LeasedEvent, loaded
from evaluation.events.models import OutboxEvent
from evaluation.events.publishing import OutgoingMessage, messages_of
from evaluation.events.stream_writer import StreamWriter

log = logging.getLogger(__name__)

BATCH: Final = 500
LEASE_SECONDS: Final = 30
IDLE_SECONDS: Final = 0.02  # between two polls of an empty outbox
TROUBLE_SECONDS: Final = 1.0


def batch_take(limit: int = BATCH) -> list[LeasedEvent]:
    """Leases the oldest rows that no other relay has leased."""
    with connection.cursor() as cursor:
        cursor.execute(
            "WITH due AS (SELECT id FROM events_outboxevent WHERE settled_at IS NULL AND try_after <= clock_timestamp()"
            "   ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED)"
            " UPDATE events_outboxevent o SET tries = LEAST(o.tries + 1, 30000),"
            "   try_after = clock_timestamp() + make_interval(secs => %s)"
            " FROM due WHERE o.id = due.id"
            " RETURNING o.id, o.message_id::text, o.organization_id, o.kind, o.key, o.month, o.data, o.created_at",
            [limit, LEASE_SECONDS],
        )
        found = [LeasedEvent(*row)._replace(data=loaded(row[6])) for row in cursor.fetchall()]
    return sorted(found)


def batch_settle(sent: Mapping[int, int], withheld: Sequence[OutgoingMessage], failed: Sequence[int] = ()) -> None:
    """Settles sent rows (their sequences, by row) and withheld ones. Failed rows are retried in a moment, before the
    end of their lease."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE events_outboxevent o SET settled_at = clock_timestamp(), sequence = sent.sequence"
            " FROM unnest(%s::bigint[], %s::bigint[]) AS sent(id, sequence) WHERE o.id = sent.id",
            [list(sent), list(sent.values())],
        )
        for message in withheld:
            OutboxEvent.objects.filter(id=message.row).update(settled_at=timezone.now(), withheld=message.withheld[:60])
        if failed:
            soon = Now() + timedelta(seconds=TROUBLE_SECONDS)  # leases are by the database's clock
            OutboxEvent.objects.filter(id__in=failed).update(try_after=soon)


class Relay:
    """Publishes until ``stopping`` is set. Keeps running while NATS or the database is unavailable."""

    def __init__(self, client: Client, stopping: asyncio.Event) -> None:
        self._client, self._stopping = client, stopping
        self._writer = StreamWriter(client)
        self._settling: asyncio.Task[None] | None = None

    async def run(self) -> None:
        taken: asyncio.Task[list[OutgoingMessage]] | None = None
        while not self._stopping.is_set():
            try:
                messages = await (taken or self._take())
                taken = None
                if not messages:
                    await pause(self._stopping, IDLE_SECONDS)
                    continue
                # The next batch is read while the stream answers this one.
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
            await self._settle({}, [], [message.row for message in await taken])
        await self._settled()

    async def once(self) -> int:
        """Publishes one batch. Returns its number of rows."""
        messages = await self._take()
        await self._publish(messages)
        await self._settled()
        return len(messages)

    async def _take(self) -> list[OutgoingMessage]:
        if not self._client.is_connected:
            return []
        return await lasting(_read)()

    async def _publish(self, messages: Sequence[OutgoingMessage]) -> None:
        most = self._client.max_payload
        messages = [message.within(most) for message in messages]
        withheld = [message for message in messages if message.withheld]
        ready = [message for message in messages if not message.withheld]
        sent = await self._writer.write(ready)
        metrics.published.inc(len(sent))
        await self._settled()
        # Runs while the next batch is published.
        failed = [message.row for message in ready if message.row not in sent]
        self._settling = asyncio.create_task(self._settle(sent, withheld, failed))

    async def _settle(
        self, sent: Mapping[int, int], withheld: Sequence[OutgoingMessage], failed: Sequence[int]
    ) -> None:
        await lasting(batch_settle)(sent, withheld, failed)

    async def _settled(self) -> None:
        """The batch before has been settled."""
        if self._settling is not None:
            settling, self._settling = self._settling, None
            await settling


def _read() -> list[OutgoingMessage]:
    return messages_of(batch_take())
