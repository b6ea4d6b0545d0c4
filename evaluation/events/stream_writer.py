"""Many messages to JetStream at once, each by its id, and what the streams answered.

The client's own ``publish_async`` makes a future, a random token and a dataclass of each message, which is more work
than the rest of a publish. Here a batch is one event, and the token is the row's id.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final

import orjson
from nats.aio.client import Client
from nats.aio.msg import Msg

from evaluation.events.publishing import OutgoingMessage

log = logging.getLogger(__name__)

MESSAGE_ID: Final = "Nats-Msg-Id"
OURS: Final = "AgentCore-Message"  # a header of what we said ourselves, on plain subjects
ACK_SECONDS: Final = 10.0


class StreamWriter:
    """Publishes batch after batch, in their order. One at a time."""

    def __init__(self, client: Client) -> None:
        self._client, self._inbox = client, client.new_inbox()
        self._listening = False
        self._waiting: set[str] = set()  # rows of this batch that no stream has answered to
        self._stored: dict[int, int] = {}
        self._answered = asyncio.Event()

    async def write(self, messages: Sequence[OutgoingMessage]) -> dict[int, int]:
        """The sequences in their streams by row, of those that were stored within ``ACK_SECONDS``.

        Raises:
            nats.errors.Error, OSError: there is no connection to publish on.
        """
        if not messages:
            return {}
        if not self._listening:
            await self._client.subscribe(f"{self._inbox}.*", cb=self._answer, pending_msgs_limit=-1)
            self._listening = True
        self._waiting, self._stored = {str(message.row) for message in messages}, {}
        self._answered.clear()
        for message in messages:
            headers = {MESSAGE_ID: message.message_id, OURS: "1"}
            await self._client.publish(message.subject, message.body, f"{self._inbox}.{message.row}", headers)
        try:
            await asyncio.wait_for(self._answered.wait(), ACK_SECONDS)
        except TimeoutError:
            log.warning("%d of %d messages were not acknowledged", len(self._waiting), len(messages))
        self._waiting = set()
        return self._stored

    async def _answer(self, message: Msg) -> None:
        row = message.subject.rpartition(".")[2]
        if row not in self._waiting:
            return  # of a batch that was given up
        answer: dict[str, Any] = orjson.loads(message.data) if message.data else {"error": message.headers}
        if "error" in answer:
            log.warning("a message was not stored: %s", answer["error"])
        else:
            self._stored[int(row)] = answer["seq"]
        self._waiting.discard(row)
        if not self._waiting:
            self._answered.set()
