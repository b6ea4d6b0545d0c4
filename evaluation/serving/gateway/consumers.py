"""Consumers of the gateway: programs, each with a key of its own."""

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
from evaluation.serving.keys.selectors import key_spent_micros

SECONDS: Final = 1.0  # a revoked key is refused after that at the latest


@dataclass(frozen=True, slots=True)
class Consumer:
    """A key with its organisation and limits (None: no limit). ``fault``: the reason why it may not call.
    ``addresses``: the only networks that may use it; empty: all.
    ``spent_micros``: micro-dollars of this month, by a read that began at ``read_at`` (of ``time.monotonic``).
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
    """Cached keys of one event loop. Cached keys stay valid while the database is unavailable."""

    def __init__(self) -> None:
        self._known: ReadCache[bytes, Consumer] = ReadCache(lasting=True)

    async def of(self, token: str) -> Consumer | None:
        """None: the key is unknown or no longer valid."""
        if not token.startswith(KEY_PREFIX):
            return None
        named = hashlib.sha256(token.encode()).digest()  # memory holds no key longer than its request
        found = await self._known.get(named, SECONDS, lambda: _consumer(token))
        found = found or self._known.fresh(named, math.inf)
        return found if found is not None and found.prefix else None


def _consumer(token: str) -> Consumer:
    """Never None: None would mean that the database is unavailable."""
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
    spent_micros = 0 if row.monthly_micros is None else key_spent_micros(row.pk)
    limits = (row.per_minute, row.monthly_micros, spent_micros, began)
    return Consumer(row.organization_id, row.prefix, why, row.pk, *limits, addresses=tuple(row.addresses))
