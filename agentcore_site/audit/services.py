"""The one way into the audit log, in the transaction of the change it tells of, and an erasure's way to its texts."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection
from django.db.models import Model

from agentcore_site.audit.models import AuditEvent


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

    The names of actor and target are frozen as text, so that the log stays readable when they are gone.
    """
    user = getattr(actor, "user", actor)
    user_id = getattr(user, "pk", None)
    owner = organization if organization is not None else getattr(target, "organization_id", None)
    return AuditEvent.objects.create(
        organization_id=owner if isinstance(owner, uuid.UUID) else getattr(owner, "id", None),
        user_id=user_id,
        actor=str(getattr(user, "username", "") or "system")[:150],
        door=str(getattr(actor, "door", ""))[:40],
        ip=str(getattr(actor, "ip", ""))[:45],
        action=action,
        target_type=target._meta.label_lower if target is not None else "",
        target_id=str(target.pk) if target is not None else "",
        target=str(target)[:200] if target is not None else "",
        before=before,
        after=after,
    )


@contextmanager
def events_open() -> Iterator[None]:
    """Lets ``target``, ``before`` and ``after`` be changed until it ends, for an erasure and in its transaction. The
    database goes on refusing every other change."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('agentcore.erasure', 'on', true)")
        yield
        # After an error the transaction is rolled back, and the setting with it.
        cursor.execute("SELECT set_config('agentcore.erasure', 'off', true)")
