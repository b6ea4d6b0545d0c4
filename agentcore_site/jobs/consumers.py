"""Live events over a websocket: history first, then in order, no gap and none twice over a reconnect (SPEC I5).

The socket is only a nudge. Each time it is told that the job moved (and every few seconds in any case) it reads the
rows after the last ``seq`` it has sent.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any
from urllib.parse import parse_qs

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncJsonWebsocketConsumer

from agentcore_site.errors import DomainError
from agentcore_site.jobs.events import LiveEvent, events_after, group_of
from agentcore_site.jobs.models import Job
from agentcore_site.jobs.selectors import job_get, share_alive, shared_job
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.authentication import actor_of_key, bearer

POLL_SECONDS = 3.0
# At most this often to one page: a chart that moves four times a second is live enough.
BREATH_SECONDS = 0.25
GONE, FORBIDDEN = 4404, 4401


class JobConsumer(AsyncJsonWebsocketConsumer):
    """``/ws/jobs/<id>/?after=<seq>`` for members, ``/ws/shared/<token>/`` for holders of a share link."""

    job: Job
    pump: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        query = parse_qs(self.scope.get("query_string", b"").decode())
        try:
            self.seq = max(0, int(query.get("after", ["0"])[0]))
        except ValueError:
            self.seq = 0
        await self.accept()
        job = await self._find()
        if job is None:
            await self.close(code=GONE)
            return
        self.job = job
        self.moved = asyncio.Event()
        self.moved.set()
        self.group = group_of(str(job.id))
        await self.channel_layer.group_add(self.group, self.channel_name)
        self.pump = asyncio.create_task(self._pump())

    async def disconnect(self, code: int) -> None:
        if self.pump is not None:
            self.pump.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.pump
            await self.channel_layer.group_discard(self.group, self.channel_name)

    async def receive_json(self, content: Any, **_: Any) -> None:
        """Pages only listen; whatever they send is ignored."""

    async def job_moved(self, message: dict[str, Any]) -> None:
        self.moved.set()

    async def _pump(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.moved.wait(), POLL_SECONDS)
            self.moved.clear()
            if not await self._still_allowed():
                await self.close(code=FORBIDDEN)
                return
            while events := await self._read():
                for event in events:
                    await self.send_json(event)
                    self.seq = event["seq"]
            await asyncio.sleep(BREATH_SECONDS)

    @database_sync_to_async
    def _read(self) -> list[LiveEvent]:
        return events_after(self.job, self.seq)

    @database_sync_to_async
    def _find(self) -> Job | None:
        kwargs = self.scope["url_route"]["kwargs"]
        if token := kwargs.get("token"):
            return shared_job(token)
        try:
            actor = self._actor()
            return None if actor.only_service else job_get(actor, kwargs["job_id"])
        except DomainError:
            return None

    @database_sync_to_async
    def _still_allowed(self) -> bool:
        """A revoked link or membership ends the stream, not only the next connection."""
        if token := self.scope["url_route"]["kwargs"].get("token"):
            return share_alive(token)
        return Job.objects.visible_to(self._actor()).filter(id=self.job.id).exists()

    def _actor(self) -> Actor:
        headers = dict(self.scope.get("headers", []))
        token = bearer(headers.get(b"authorization", b"").decode("latin-1"))
        if token:
            return actor_of_key(token) or Actor(None)
        return Actor(self.scope.get("user"), door="console")
