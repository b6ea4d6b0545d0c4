"""Rows of the outbox that a relay has leased, and reasons why one makes no message."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from datetime import date, datetime
from typing import Any, Final, NamedTuple

import orjson

from experiences.models import Agent

GONE: Final = "it is gone"
NOT_RECORDED: Final = "its agent may not be recorded"
KEY_AWAY: Final = "encrypted; its key can't be had now"

Payload = dict[str, Any]


class LeasedEvent(NamedTuple):
    """A row of the outbox that this relay has leased, in the order of ids."""

    id: int
    message_id: str
    organization_id: uuid.UUID
    kind: str
    key: uuid.UUID
    month: date | None
    data: dict[str, Any]
    created_at: datetime


Made = Iterator[tuple[LeasedEvent, Payload | str]]  # rows that are gone are left out


def loaded(value: Any) -> Any:
    """Parses a JSON column of a bare cursor."""
    return orjson.loads(value) if isinstance(value, str | bytes) else value


def agents_of(ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, tuple[str, bool]]:
    """The slug of each agent, and whether it may be recorded."""
    rows = Agent.objects.filter(id__in=set(ids)).values_list("id", "slug", "collects")
    return {id: (slug, collects) for id, slug, collects in rows}
