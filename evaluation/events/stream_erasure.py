"""Deletes erased content from the streams too: our messages with it, and the received ones."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from django.db import connection
from nats.js import JetStreamContext
from nats.js.api import RawStreamMsg
from nats.js.errors import NotFoundError

from agentcore_site.lib.async_db import lasting
from evaluation.events.interruptible_sleep import pause
from evaluation.events.models import ErasedMessage
from evaluation.events.stream_writer import MESSAGE_ID

log = logging.getLogger(__name__)

BATCH: Final = 500
POLL_SECONDS: Final = 2.0
ROUNDED: Final = timedelta(milliseconds=1)

# One that was on its way waits until it is settled; then it has a sequence, or was never sent.
DUE: Final = """
SELECT e.id, e.stream, coalesce(e.sequence, o.sequence), e.mark FROM events_erasedmessage e
LEFT JOIN events_outboxevent o ON e.sequence IS NULL AND o.message_id::text = e.mark
WHERE e.sequence IS NOT NULL OR o.id IS NULL OR o.settled_at IS NOT NULL
ORDER BY e.id LIMIT %s
"""


async def streams_erase(js: JetStreamContext, stopping: asyncio.Event) -> None:
    """Until ``stopping`` is set; survives NATS and the database away: what is not deleted yet stays noted."""
    while not stopping.is_set():
        try:
            while await erase_once(js):
                pass
        except Exception as error:  # the client's own, those of sockets, and the database's
            log.warning("an erasure waits for its streams: %s", error or type(error).__name__)
        await pause(stopping, POLL_SECONDS)


async def erase_once(js: JetStreamContext) -> int:
    """Deletes a batch. Returns how many messages it had."""
    if not (due := await lasting(_due)()):
        return 0
    for _, stream, sequence, mark in due:
        if sequence is not None:
            await _delete(js, stream, sequence, mark)
    await lasting(_done)([one[0] for one in due])
    return len(due)


async def _delete(js: JetStreamContext, stream: str, sequence: int, mark: str) -> None:
    try:
        message = await js.get_msg(stream, sequence)
        if mark in _marks(message) or _is_time(mark, message.time):
            await js.delete_msg(stream, sequence)
    except NotFoundError:
        return  # its time in the stream was over


def _marks(message: RawStreamMsg) -> set[str]:
    return {hashlib.sha256(message.data or b"").hexdigest(), (message.headers or {}).get(MESSAGE_ID, "")}


def _is_time(mark: str, stored_at: datetime | None) -> bool:
    """The client rounds the server's nanoseconds otherwise in a message that is delivered than in one that is read."""
    try:
        return stored_at is not None and abs(datetime.fromisoformat(mark) - stored_at) <= ROUNDED
    except ValueError:
        return False


def _due() -> list[tuple[int, str, int | None, str]]:
    if not ErasedMessage.objects.exists():  # as nearly always: the outbox is long
        return []
    with connection.cursor() as cursor:
        cursor.execute(DUE, [BATCH])
        return list(cursor.fetchall())


def _done(ids: Sequence[int]) -> None:
    ErasedMessage.objects.filter(id__in=ids).delete()
