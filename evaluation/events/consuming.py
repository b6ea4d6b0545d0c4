"""Durable pull consumers: a message is acknowledged after its commit, tried again with back-off, then a dead letter.

The server's limit of deliveries is not used, because it would drop a message silently: deliveries are counted here.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import orjson
from django.db import connection
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import TimeoutError as NothingThere
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig

from agentcore_site.lib import disk
from agentcore_site.lib.async_db import lasting
from agentcore_site.lib.database import TROUBLE, trouble_in
from agentcore_site.lib.errors import Unavailable
from evaluation.events import metrics
from evaluation.events.intake import receivers  # noqa: F401  (registers them)
from evaluation.events.intake.messages import NotTaken, Outcome, StoredMessage, block_take, dead_letter_store
from evaluation.events.interruptible_sleep import pause
from evaluation.events.models import DeadLetter, DeadReason
from evaluation.events.publishing import OutgoingMessage
from evaluation.events.stream_writer import OURS, StreamWriter
from evaluation.events.subjects import DEAD_LETTERS, DURABLE, InboxPlan, StreamPlan, of_publisher

log = logging.getLogger(__name__)

ACK_SECONDS: Final = 60.0
WAIT_SECONDS: Final = 1.0
TROUBLE_SECONDS: Final = 1.0
DISK_SECONDS: Final = 5.0
MOST_TRIES: Final = 5
# Where all of a block is refused, the next block waits so many times as long as this one took: an organisation whose
# programs send nothing that can be read leaves the processor to others, and its stream fills.
DEAD_REST: Final = 4.0
BACKOFF: Final = (1.0, 5.0, 30.0, 120.0)  # seconds before the next try


class EventConsumer:
    """Handles the messages of one stream until ``stopping`` is set. Keeps running while NATS or the database is
    unavailable, and waits while the disk is nearly full."""

    def __init__(
        self,
        client: Client,
        plan: StreamPlan | InboxPlan,
        stopping: asyncio.Event,
        *,
        wait: float = WAIT_SECONDS,
        threads: ThreadPoolExecutor | None = None,
    ) -> None:
        """``threads`` do the work in the database; without, the process's one thread for it does."""
        self._threads = threads
        self._plan, self._stopping, self._wait = plan, stopping, wait
        self._js: JetStreamContext = client.jetstream()
        self._dead_letters = StreamWriter(client)
        self._subscription: JetStreamContext.PullSubscription | None = None
        self._blameless: set[int] = set()  # messages that failed only because a key or a storage was unavailable

    async def run(self) -> None:
        while not self._stopping.is_set():
            try:
                await self.once()
            except Exception as error:  # of the client or of sockets: it reconnects automatically
                log.warning("the consumer of %s waits: %s", self._plan.name, error or type(error).__name__)
                self._subscription = None
                await pause(self._stopping, TROUBLE_SECONDS)

    async def once(self) -> int:
        """Handles one block. Returns its number of messages."""
        if full := disk.shortage():  # the streams keep the messages
            log.warning("the consumer of %s waits: %s", self._plan.name, full)
            await pause(self._stopping, DISK_SECONDS)
            return 0
        if self._subscription is None:
            self._subscription = await self._subscribed()
        try:
            messages = await self._subscription.fetch(self._plan.block, timeout=self._wait)
        except (TimeoutError, NothingThere):
            return 0
        theirs = []
        for message in messages:
            if (message.headers or {}).get(OURS) and not of_publisher(message.subject):
                await message.ack()  # our own message on a plain subject
            else:
                theirs.append(message)
        # A message that was delivered before is handled alone: if it kills this process, no other counts as the cause.
        fresh = [one for one in theirs if _tries(one) == 1]
        began, dead = time.monotonic(), 0
        for block in filter(None, [fresh, *([one] for one in theirs if _tries(one) > 1)]):
            dead += await self._settle(block, await self._outcomes(block))
        if theirs and dead == len(theirs):
            await pause(self._stopping, min(DEAD_REST * (time.monotonic() - began), TROUBLE_SECONDS))
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

    async def _outcomes(self, block: Sequence[Msg]) -> list[Outcome]:
        """The outcome of each message; if the whole block can't be committed, of each message alone."""
        stored = [self._stored(message) for message in block]
        if any(_tries(message) > MOST_TRIES and _number(message) not in self._blameless for message in block):
            # the last handling did not even end
            return [RuntimeError(f"it was delivered {_tries(message)} times") for message in block]
        try:
            return await lasting(block_take, self._threads)(stored)
        except Exception as error:
            if trouble_in(error) is not None:
                log.warning("%s waits for the database: %s", self._plan.name, error)
                await self._database_back(block)
            if len(block) > 1:
                return [outcome for message in block for outcome in await self._outcomes([message])]
        try:
            return await lasting(block_take, self._threads)(stored)
        except Exception as error:
            return [error]

    async def _database_back(self, block: Sequence[Msg]) -> None:
        """Waits until the database answers. The messages stay leased: an outage does not count as a try."""
        while not self._stopping.is_set():
            await pause(self._stopping, TROUBLE_SECONDS)
            for message in block:
                await message.in_progress()
            try:
                return await lasting(connection.ensure_connection, self._threads)()
            except TROUBLE:
                continue

    async def _settle(self, block: Sequence[Msg], outcomes: Sequence[Outcome]) -> int:
        """Acknowledges committed messages. Dead letters are published before the ack; their ids drop duplicates.
        Returns the number of dead letters."""
        dead: dict[int, tuple[Msg, DeadLetter]] = {}
        for message, outcome in zip(block, outcomes, strict=True):
            if isinstance(outcome, Exception):
                tries, stored = _tries(message), self._stored(message)
                log.error("message %s of %s, try %d", stored.sequence, stored.stream, tries, exc_info=outcome)
                if away := isinstance(outcome, Unavailable):
                    self._blameless.add(_number(message))
                if away or tries < MOST_TRIES or trouble_in(outcome) is not None:
                    await message.nak(delay=BACKOFF[min(tries, len(BACKOFF)) - 1])
                    continue
                failed = NotTaken(DeadReason.FAILED, f"{type(outcome).__name__}: {outcome}")
                outcome = await lasting(dead_letter_store, self._threads)(stored, failed)
            self._blameless.discard(_number(message))
            if outcome is None:
                await message.ack()
                metrics.consumed.labels(self._plan.family, "taken").inc()
            else:
                dead[_number(message)] = (message, outcome)
        written = await self._dead_letters.write([_message(number, letter) for number, (_, letter) in dead.items()])
        for number in written:
            message, letter = dead[number]
            await message.ack()
            metrics.consumed.labels(self._plan.family, letter.reason).inc()
        return len(dead)

    def _stored(self, message: Msg) -> StoredMessage:
        about = message.metadata
        return StoredMessage(message.subject, message.data, self._plan.name, about.sequence.stream, about.timestamp)


def _tries(message: Msg) -> int:
    return message.metadata.num_delivered or 1


def _number(message: Msg) -> int:
    """The message's sequence in the stream."""
    return int(message.metadata.sequence.stream)


def _message(number: int, letter: DeadLetter) -> OutgoingMessage:
    stored = {
        "dead_letter_id": str(letter.pk),
        "subject": letter.subject,
        "stream": letter.stream,
        "sequence": letter.sequence,
        "reason": letter.reason,
        "detail": letter.detail,
    }
    return OutgoingMessage(number, str(letter.pk), f"{DEAD_LETTERS}.{letter.stream}", orjson.dumps(stored))
