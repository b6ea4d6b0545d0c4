"""Who calls the gateway: programs, each with a key of its own."""

from __future__ import annotations

import hashlib
import math
import time
import uuid
from dataclasses import dataclass
from typing import Final

from agentcore_site.lib.read_cache import ReadCache
from agentcore_site.lib.row_scope import only
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.authentication import living_key
from agentcore_site.tenancy.models import ApiKey
from agentcore_site.tenancy.services import KEY_PREFIX
from evaluation.serving.keys.selectors import spent_by

SECONDS: Final = 1.0  # a key that was revoked opens nothing after that


@dataclass(frozen=True, slots=True)
class Consumer:
    """A key that may call, whose it is, and its limits (null: none). ``fault``: why it may not. ``addresses``: from
    which alone; none: from everywhere.

    ``spent_micros``: in this month, by a read that began at ``read_at`` (of ``time.monotonic``).
    """

    organization_id: uuid.UUID
    prefix: str
    fault: str = ""
    key_id: uuid.UUID | None = None
    per_minute: int | None = None
    monthly_micros: int | None = None
    spent_micros: int = 0
    read_at: float = 0.0
    addresses: tuple[str, ...] = ()


class Consumers:
    """What is known of keys; those of one event loop. With the database away, keys that were known stay known."""

    def __init__(self) -> None:
        self._known: ReadCache[bytes, Consumer] = ReadCache(lasting=True)

    async def of(self, token: str) -> Consumer | None:
        """None: no living key."""
        if not token.startswith(KEY_PREFIX):
            return None
        named = hashlib.sha256(token.encode()).digest()  # no key stands in memory longer than its request
        found = await self._known.get(named, SECONDS, lambda: _consumer(token))
        found = found or self._known.fresh(named, math.inf)
        return found if found is not None and found.prefix else None


def _consumer(token: str) -> Consumer:
    """Always something, since nothing means that the database is away."""
    began = time.monotonic()
    row = living_key(token)
    if row is None:
        return Consumer(uuid.UUID(int=0), "")
    with only(row.organization_id):
        return _allowed(row, began)


def _allowed(row: ApiKey, began: float) -> Consumer:
    actor = Actor(row.user, scopes=frozenset(row.scopes), organization_id=row.organization_id)
    may = actor.may("gateway.call", row.organization_id)
    why = "" if may else "This key may not call models. Make one with the scope gateway:call."
    spent = 0 if row.monthly_micros is None else spent_by(row.pk)
    limits = (row.per_minute, row.monthly_micros, spent, began)
    return Consumer(row.organization_id, row.prefix, why, row.pk, *limits, addresses=tuple(row.addresses))
