"""Listens for playbooks that changed anywhere, for as long as the process serves."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from django.conf import settings
from redis.exceptions import RedisError

from agentcore_site.lib.redis_address import async_redis_client
from experiences.playbooks.invalidation import CHANNEL

log = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 1.0
POLL_SECONDS, SILENT_SECONDS = 2.0, 6.0  # a connection that answers no ping for so long is dead


class InvalidationListener:
    """Calls ``changed`` with an agent's id for each announcement, and with None when some may have been missed.

    ``listening`` is true while announcements arrive.
    """

    def __init__(self, changed: Callable[[str | None], None]) -> None:
        self._changed = changed
        self.listening = False
        self._task: asyncio.Task[None] | None = None
        self._complained = False

    def ensure(self) -> None:
        """Starts in the running loop, at the first request: this server has no other beginning."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            try:
                await self._listen()
            except (RedisError, OSError) as error:
                if not self._complained:  # once for each time that Redis is away
                    log.warning("changes of playbooks can't be received: %s", error)
                self._complained = True
            finally:
                self.listening = False
            await asyncio.sleep(AGAIN_SECONDS)

    async def _listen(self) -> None:
        """Raises:
        RedisError, OSError: the connection is gone."""
        client = async_redis_client(settings.REDIS_URL, socket_connect_timeout=AGAIN_SECONDS)
        async with client, client.pubsub() as pubsub:
            await pubsub.subscribe(CHANNEL)
            last_message = time.monotonic()
            while time.monotonic() - last_message < SILENT_SECONDS:
                message = await pubsub.get_message(timeout=POLL_SECONDS)
                if message is None:
                    await pubsub.ping()
                    continue
                last_message = time.monotonic()
                self._take(message)
        raise ConnectionError("nothing was received, not even an answer to a ping")

    def _take(self, message: dict[str, object]) -> None:
        if message["type"] == "subscribe":
            # Announcements before that moment were not received.
            self._changed(None)
            self.listening, self._complained = True, False
        elif message["type"] == "message":
            data = message["data"]
            self._changed(data.decode("ascii", "replace") if isinstance(data, bytes) else str(data))
