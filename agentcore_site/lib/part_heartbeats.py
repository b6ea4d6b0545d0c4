"""Heartbeats of the parts of the feedback loop, for health."""

from __future__ import annotations

import logging
from typing import Final

from django.core.cache import cache
from django.utils import timezone
from redis import RedisError

log = logging.getLogger(__name__)

ALIVE_SECONDS: Final = 15  # then a silent part is assumed dead
PARTS: Final = ("relay", "consumers")


def heartbeat_key(part: str) -> str:
    return f"events.{part}"


def heartbeats_send(parts: tuple[str, ...]) -> None:
    try:
        cache.set_many({heartbeat_key(part): timezone.now().isoformat() for part in parts}, ALIVE_SECONDS)
    except RedisError as error:
        log.warning("heartbeats can't be sent: %s", error)
