"""Idempotency keys on POST: the same key and body give the same answer for 24 hours, another body is a conflict.

Kept in PostgreSQL and not in Redis, for two reasons. The key's row is written in the transaction of the work itself,
so there is no moment at which a job exists and its key does not, or the reverse. And jobs are accepted while Redis is
away: a retry in that hour must not start a second one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, NamedTuple

import orjson
from django.db import IntegrityError, transaction
from django.utils import timezone

from agentcore_site.lib.errors import Conflict, Invalid
from agentcore_site.models import IdempotencyRecord
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import current_organization

KEPT: Final = timedelta(hours=24)
MAX_KEY: Final = 200


class StoredResponse(NamedTuple):
    status: int
    body: Any
    replayed: bool


def fingerprint(operation: str, payload: Any) -> str:
    """One digest for what was asked: the operation and its input, independent of the order of keys."""
    options = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS
    return hashlib.sha256(operation.encode() + b"\n" + orjson.dumps(payload, default=str, option=options)).hexdigest()


def once(
    actor: Actor, key: str, *, operation: str, payload: Any, work: Callable[[], tuple[int, Any]]
) -> StoredResponse:
    """Runs ``work`` (status, JSON body), or gives the answer that it gave before under the same key.

    A request that fails leaves no trace: its retry runs again. Two at once take turns: the second waits on the
    unique key until the first has committed, and gets its answer.

    Raises:
        Invalid: the key is empty, too long or not printable.
        Conflict: the key was used for another request.
    """
    if not 1 <= len(key) <= MAX_KEY or not key.isascii() or not key.isprintable():
        message = f"An idempotency key has 1 to {MAX_KEY} printable ASCII characters."
        raise Invalid(message, fields={"idempotency_key": message})
    organization = current_organization(actor)
    mine = IdempotencyRecord.objects.filter(organization=organization, user=actor.user)
    digest = fingerprint(operation, payload)
    with transaction.atomic():
        mine.filter(created_at__lt=timezone.now() - KEPT).delete()
        try:
            with transaction.atomic():
                record = IdempotencyRecord.objects.create(
                    organization=organization, user=actor.user, key=key, operation=operation[:200], fingerprint=digest
                )
        except IntegrityError:
            return _again(mine.get(key=key), digest)
        status, body = work()
        IdempotencyRecord.objects.filter(id=record.id).update(status=status, body=body)
    return StoredResponse(status, body, False)


def _again(found: IdempotencyRecord, digest: str) -> StoredResponse:
    if found.fingerprint != digest:
        raise Conflict("This idempotency key was used for another request in the last 24 hours. Use a new one.")
    return StoredResponse(found.status, found.body, True)
