"""Live events over a websocket: history first, then in order, without gaps or duplicates over a reconnect.

The channel layer only gives a hint. Each time it announces a change of the job (and every few seconds in any case) the
rows after the last ``seq`` that was sent are read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any, Final
from urllib.parse import parse_qs
from uuid import uuid4

import orjson
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from redis.exceptions import RedisError

from agentcore_site.jobs.events import LiveEvent, events_after, group_of
from agentcore_site.jobs.models import Job
from agentcore_site.jobs.socket_slots import slot_free, slot_renew, slot_take
from agentcore_site.jobs.viewers import Viewer, viewer_of
from agentcore_site.lib.database import TROUBLE
from agentcore_site.lib.row_scope import only

log = logging.getLogger(__name__)

POLL_SECONDS = 3.0
# At most this often to one page: a chart that moves four times a second is live enough.
BREATH_SECONDS = 0.25
GONE, FORBIDDEN, TOO_MANY, TRY_AGAIN, TOO_LARGE = 4404, 4401, 4429, 1013, 1009
LARGEST_SEQ: Final = 2**63 - 1


class JobConsumer(AsyncWebsocketConsumer):
    """``/ws/jobs/<id>/?after=<seq>`` for members, ``/ws/shared/<token>/`` for holders of a share link.

    Closes with 4404 if there is no such job for this viewer, and 4401 if the access has ended. The code is 4429 if the
    viewer has too many sockets open, 1009 after a frame that is too large, and 1013 if the database is unavailable.
    """

    viewer: Viewer
    job: Job
    pump: asyncio.Task[None] | None = None
    group = ""
    slot = ""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        # Not in `disconnect`, which is not called when the handler fails, or when the server cancels this task.
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._stop()

    async def connect(self) -> None:
        self.seq = after_of(self.scope)
        self.viewer = viewer_of(self.scope)
        await self.accept()
        try:
            await self._start()
        except TROUBLE:
            await self.close(code=TRY_AGAIN, reason="The database does not answer. Connect again later.")

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None, **_: Any) -> None:
        """Pages only listen: their messages are ignored unread. A frame that is too large closes the socket, also if
        the server itself would accept it."""
        if len(bytes_data or (text_data or "").encode(errors="replace")) > settings.SOCKET_MAX_FRAME:
            await self.close(code=TOO_LARGE, reason=f"A frame has at most {settings.SOCKET_MAX_FRAME:,} bytes.")

    async def job_moved(self, message: dict[str, Any]) -> None:
        self.moved.set()

    async def _start(self) -> None:
        job = await self.viewer.find()
        if job is None:
            await self.close(code=GONE, reason="There is no such job for you.")
            return
        if not await self._take_slot():
            reason = f"At most {self.viewer.limit} live connections at once. Close one."
            await self.close(code=TOO_MANY, reason=reason)
            return
        self.job = job
        self.moved = asyncio.Event()
        self.moved.set()
        self.group = group_of(str(job.id))
        with contextlib.suppress(RedisError, OSError):  # without Redis no hints come, and polls continue
            await self.channel_layer.group_add(self.group, self.channel_name)
        self.pump = asyncio.create_task(self._pump())

    async def _stop(self) -> None:
        """Releases everything that this socket holds; safe to call at any moment, also after a connection failed
        half-way."""
        if self.pump is not None:
            self.pump.cancel()
            await asyncio.gather(self.pump, return_exceptions=True)
        if self.group:
            with contextlib.suppress(RedisError, OSError):
                await self.channel_layer.group_discard(self.group, self.channel_name)
        if self.slot:
            await database_sync_to_async(slot_free)(self.viewer.subject, self.slot)

    async def _pump(self) -> None:
        try:
            while await self._send_news():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.moved.wait(), POLL_SECONDS)
            await self.close(code=FORBIDDEN, reason="Your access has ended.")
        except TROUBLE:
            await self.close(code=TRY_AGAIN, reason="The database does not answer. Connect again later.")
        except (OSError, RuntimeError):
            log.debug("a socket was cut while it was written to", exc_info=True)

    async def _send_news(self) -> bool:
        """Sends new events; False if this viewer may no longer follow the job."""
        self.moved.clear()
        if not await self.viewer.may_follow(self.job):
            return False
        while events := await self._read():
            for event in events:
                await self.send(text_data=orjson.dumps(event).decode())
                self.seq = event["seq"]
        await database_sync_to_async(slot_renew)(self.viewer.subject, self.slot)
        await asyncio.sleep(BREATH_SECONDS)
        return True

    @database_sync_to_async
    def _read(self) -> list[LiveEvent]:
        with only(self.job.organization_id):
            return events_after(self.job, self.seq)

    async def _take_slot(self) -> bool:
        name = uuid4().hex
        taken = await database_sync_to_async(slot_take)(self.viewer.subject, name, self.viewer.limit)
        self.slot = name if taken else ""
        return taken


def after_of(scope: dict[str, Any]) -> int:
    """The number after which events are requested (``?after=``); 0 for none, or for a value that is not a number."""
    query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
    try:
        return min(max(0, int(query.get("after", ["0"])[0])), LARGEST_SEQ)
    except ValueError:
        return 0
