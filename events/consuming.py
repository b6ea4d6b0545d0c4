"""Durable pull consumers: a message is acknowledged after its commit, tried again with back-off, then a dead letter.

There is no limit of deliveries on the server, which would drop a message in silence: we count them ourselves.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import orjson
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import TimeoutError as NothingThere
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig

from agentcore_site.lib.async_db import lasting
from agentcore_site.lib.database import trouble_in
from events import metrics
from events.intake import receivers  # noqa: F401  (registers them)
from events.intake.messages import NotTaken, StoredMessage, dead_letter_store, message_take
from events.models import DeadLetter, DeadReason
from events.pausing import pause
from events.stream_writer import MESSAGE_ID, OURS
from events.subjects import DEAD_LETTERS, StreamPlan

log = logging.getLogger(__name__)

DURABLE: Final = "agentcore"
BATCH: Final = 100
ACK_SECONDS: Final = 60.0
WAIT_SECONDS: Final = 1.0
TROUBLE_SECONDS: Final = 1.0
MOST_TRIES: Final = 5
BACKOFF: Final = (1.0, 5.0, 30.0, 120.0)  # seconds before the next try


class EventConsumer:
    """Takes the messages of one stream until ``stopping`` is set; survives NATS and the database away."""

    def __init__(
        self, client: Client, plan: StreamPlan, stopping: asyncio.Event, *, wait: float = WAIT_SECONDS
    ) -> None:
        self._plan, self._stopping, self._wait = plan, stopping, wait
        self._js: JetStreamContext = client.jetstream()
        self._subscription: JetStreamContext.PullSubscription | None = None

    async def run(self) -> None:
        while not self._stopping.is_set():
            try:
                await self.once()
            except Exception as error:  # the client's own, and those of sockets: it connects again by itself
                log.warning("the consumer of %s waits: %s", self._plan.name, error or type(error).__name__)
                self._subscription = None
                await pause(self._stopping, TROUBLE_SECONDS)

    async def once(self) -> int:
        """Handles one batch. Returns how many messages it had."""
        if self._subscription is None:
            self._subscription = await self._subscribed()
        try:
            messages = await self._subscription.fetch(BATCH, timeout=self._wait)
        except (TimeoutError, NothingThere):
            return 0
        for message in messages:
            await self._handle(message)
        return len(messages)

    async def _subscribed(self) -> JetStreamContext.PullSubscription:
        config = ConsumerConfig(
            durable_name=DURABLE,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=ACK_SECONDS,
            max_ack_pending=512,
            filter_subjects=self._plan.inbound,
        )
        await self._js.add_consumer(self._plan.name, config)
        return await self._js.pull_subscribe_bind(durable=DURABLE, stream=self._plan.name)

    async def _handle(self, message: Msg) -> None:
        if (message.headers or {}).get(OURS) and not message.subject.startswith("in."):
            await message.ack()  # what we said ourselves on a plain subject
            return
        tries = message.metadata.num_delivered or 1
        stored = StoredMessage(
            message.subject,
            message.data,
            self._plan.name,
            message.metadata.sequence.stream,
            message.metadata.timestamp,
        )
        try:
            if tries > MOST_TRIES:  # its last handling did not even end
                raise RuntimeError(f"it was delivered {tries} times")
            letter = await lasting(message_take)(stored)
        except Exception as error:
            if trouble_in(error) is not None:
                log.warning("%s waits for the database: %s", self._plan.name, error)
                await message.nak(delay=TROUBLE_SECONDS)
                await pause(self._stopping, TROUBLE_SECONDS)
                return
            if tries < MOST_TRIES:
                log.exception("message %s of %s is tried again", stored.sequence, self._plan.name)
                await message.nak(delay=BACKOFF[min(tries, len(BACKOFF)) - 1])
                return
            log.exception("message %s of %s is given up", stored.sequence, self._plan.name)
            failed = NotTaken(DeadReason.FAILED, f"{type(error).__name__}: {error}")
            letter = await lasting(dead_letter_store)(stored, failed)
        if letter is not None:
            await self._bury(letter)
        await message.ack()
        metrics.consumed.labels(self._plan.name, "taken" if letter is None else letter.reason).inc()

    async def _bury(self, letter: DeadLetter) -> None:
        """Tells others too. The row is the truth: doubled is once by its id."""
        told = {
            "dead_letter_id": str(letter.pk),
            "subject": letter.subject,
            "stream": letter.stream,
            "sequence": letter.sequence,
            "reason": letter.reason,
            "detail": letter.detail,
        }
        subject = f"{DEAD_LETTERS}.{letter.stream}"
        await self._js.publish(subject, orjson.dumps(told), headers={MESSAGE_ID: str(letter.pk)})
