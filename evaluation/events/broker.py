"""The connection to NATS, and the streams."""

from __future__ import annotations

import logging
from typing import Final

import nats
from django.conf import settings
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import StorageType, StreamConfig
from nats.js.errors import NotFoundError

from evaluation.events.subjects import DAY, DEAD_LETTERS, DEAD_SHARE, DEAD_STREAM, DURABLE, STREAMS

log = logging.getLogger(__name__)

# The length of an outage after which a relay may send stored messages again: the server knows their ids.
DUPLICATES_SECONDS: Final = 3600.0
PENDING_BYTES: Final = 32 * 1024 * 1024


async def connect(name: str) -> Client:
    """A connection that reconnects automatically, to any server of the cluster that answers.

    Raises:
        NoServersError, OSError: no server answers now.
    """

    async def troubled(error: Exception) -> None:
        log.warning("NATS: %s", error or type(error).__name__)

    return await nats.connect(
        servers=[one.strip() for one in settings.NATS_URL.split(",")],
        name=f"agentcore {name}",
        max_reconnect_attempts=-1,
        reconnect_time_wait=0.5,
        connect_timeout=5,
        ping_interval=10,
        max_outstanding_pings=2,
        pending_size=PENDING_BYTES,
        error_cb=troubled,
    )


async def streams_ensure(js: JetStreamContext) -> list[str]:
    """Makes missing streams of the site, and updates the settings of existing ones. Returns their names.
    ``events.inboxes`` makes those of organisations."""
    plans = [(stream.name, stream.subjects, stream.max_age, stream.max_msgs, stream.share) for stream in STREAMS]
    plans.append((DEAD_STREAM, [f"{DEAD_LETTERS}.>"], 30 * DAY, 100_000, DEAD_SHARE))
    for name, subjects, max_age, max_msgs, share in plans:
        config = StreamConfig(
            name=name,
            subjects=subjects,
            max_age=max_age,
            max_msgs=max_msgs,
            max_bytes=int(settings.NATS_STORE_MB * 2**20 * share),
            storage=StorageType.FILE,
            num_replicas=settings.NATS_REPLICAS,
            duplicate_window=DUPLICATES_SECONDS,
        )
        if name == DEAD_STREAM:  # a subject is one organisation's
            config.max_msgs_per_subject = settings.DEAD_LETTERS_KEPT
        try:
            known = await js.stream_info(name)
        except NotFoundError:
            await js.add_stream(config)
        else:
            if await _unread(js, name):  # of an earlier release, without such a limit: they are received first
                config.max_bytes = max(config.max_bytes or 0, known.state.bytes)
            await js.update_stream(config)
    return [name for name, *_ in plans]


async def _unread(js: JetStreamContext, name: str) -> bool:
    try:
        info = await js.consumer_info(name, DURABLE)
    except NotFoundError:
        return name != DEAD_STREAM
    return bool(info.num_pending or info.num_ack_pending)
