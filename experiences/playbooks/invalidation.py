"""Notifies every web process that another context is served, so that no process serves the one before.

The message is only a hint: the row is the truth, and a process that keeps a copy reads it again after a few seconds
in any case.
"""

from __future__ import annotations

import logging
import uuid
from typing import Final

import redis
from django.db import transaction

from agentcore_site.lib.broker import broker_asked, site_redis

log = logging.getLogger(__name__)

CHANNEL: Final = "agentcore.playbooks"


def announce_on_commit(agent_id: uuid.UUID) -> None:
    """Announces it after the transaction; a message that is lost fails nothing."""
    transaction.on_commit(lambda: announce(agent_id), robust=True)


def announce(agent_id: uuid.UUID) -> None:
    try:
        with broker_asked():
            site_redis().publish(CHANNEL, str(agent_id))
    except redis.RedisError as error:
        log.warning("no process could be notified that the context of agent %s changed: %s", agent_id, error)
