"""The only writer of the audit log, in the transaction of the logged change, and the erasure of texts in it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from django.db import connection
from django.db.models import Model
from django.utils import timezone

from agentcore_site.audit.models import AuditEvent
from agentcore_site.lib.row_scope import everything
from agentcore_site.lib.trace_context import request_id


def record(
    actor: Any,
    action: str,
    target: Model | None = None,
    *,
    organization: Any = None,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
) -> AuditEvent:
    """Writes one event. ``actor`` is an Actor, a user, or None for the system itself.

    The names of actor and target are stored as text, so that the log stays readable when they are deleted.
    """
    user = getattr(actor, "user", actor)
    user_id = getattr(user, "pk", None)
    owner = organization if organization is not None else getattr(target, "organization_id", None)
    event = AuditEvent(
        organization_id=owner if isinstance(owner, uuid.UUID) else getattr(owner, "id", None),
        user_id=user_id,
        actor=str(getattr(user, "username", "") or "system")[:150],
        door=str(getattr(actor, "interface", ""))[:40],
        ip=str(getattr(actor, "ip", ""))[:45],
        request_id=request_id.get(),
        action=action,
        target_type=target._meta.label_lower if target is not None else "",
        target_id=str(target.pk) if target is not None else "",
        target=str(target)[:200] if target is not None else "",
        before=before,
        after=after,
    )
    with everything():  # also before the actor is known, and for a person of another organisation
        event.save(force_insert=True)
    return event


def archive(actor: Any, row: Any, action: str, **emptied: Any) -> bool:
    """Archives a row, with some fields emptied, and logs that; False if the row is archived already."""
    if row.archived_at is not None:
        return False
    for name, value in {"archived_at": timezone.now(), **emptied}.items():
        setattr(row, name, value)
    row.save(update_fields=["archived_at", *emptied])
    record(actor, action, row)
    return True


def event_erase(event_id: uuid.UUID, erasure_id: uuid.UUID, words: Sequence[str]) -> None:
    """Replaces the words by marks in the texts of one event. A function of the database owner does it, by order of an
    erasure under way: it takes no other text, and actor, time and target can't be changed that way."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT audit_event_erase(%s, %s, %s)", [event_id, erasure_id, list(words)])
