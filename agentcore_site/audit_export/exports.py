"""The audit log for its readers, and its export as JSONL, streamed in constant memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.db.models import Count, Max, QuerySet

from agentcore_site.audit.export_lines import lines_of
from agentcore_site.audit.models import AuditEvent
from agentcore_site.audit.services import record
from agentcore_site.audit_export.filters import AuditEventFilters
from agentcore_site.lib.async_db import briefly
from agentcore_site.lib.errors import Forbidden, Missing
from agentcore_site.lib.row_streams import streamed
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require

BATCH: Final = 1_000
MEDIA: Final = "application/x-ndjson"
FILE: Final = 'attachment; filename="audit-log.jsonl"'


@dataclass(frozen=True)
class AuditExport:
    """Lines in the order of their numbers, up to ``last``: lines written meanwhile belong to the next export."""

    rows: QuerySet[AuditEvent]
    last: int

    @briefly
    def batch(self, after: int | None) -> tuple[int | None, bytes]:
        """(the last number, the next lines) after a number; no lines at the end."""
        rows = self.rows.filter(number__gt=after or 0, number__lte=self.last).order_by("number")
        numbers = list(rows.values_list("number", flat=True)[:BATCH])
        return (numbers[-1] if numbers else after), b"".join(lines_of(numbers))


def audit_organizations(actor: Actor) -> list[UUID]:
    """Ids of the organisations whose audit log the actor may read.

    Raises:
        Forbidden: the actor may read no organisation's log.
    """
    readable = [one for one in actor.organization_ids if actor.may("audit.view", one)]
    if not readable:
        raise Forbidden("The audit log is for admins. Ask one of them.")
    return readable


def audit_visible(actor: Actor) -> QuerySet[AuditEvent]:
    """Raises Forbidden: the actor may read no organisation's log."""
    return AuditEvent.objects.filter(organization_id__in=audit_organizations(actor))


def audit_get(actor: Actor, key: UUID) -> AuditEvent:
    """Raises:
    Missing: there is no such line, or it is of another organisation's log.
    Forbidden: the line is of the actor's organisation, but the actor may not read the log.
    """
    row = AuditEvent.objects.filter(organization_id__in=actor.organization_ids, id=key).first()
    if row is None or row.organization_id is None:
        raise Missing(f"There is no event {key} in the audit log.")
    require(actor, "audit.view", row.organization_id)
    return row


def audit_site(actor: Actor) -> QuerySet[AuditEvent]:
    """The whole site's log, with lines of no organisation, such as failed sign-ins.

    Raises:
        Forbidden: the actor is no superuser, or came with a key.
    """
    if not getattr(actor.user, "is_superuser", False) or actor.scopes is not None:
        raise Forbidden("The whole site's log is for superusers, signed in themselves and not by a key.")
    return AuditEvent.objects.all()


def audit_export_start(actor: Actor, filters: Mapping[str, Any], *, site: bool = False) -> AuditExport:
    """Checks an export, and logs who exports how many lines. ``site``: of the whole site.

    Raises:
        Forbidden: the actor may not export.
        Invalid: a filter is wrong.
    """
    everything = audit_site(actor) if site else audit_visible(actor)
    rows = AuditEventFilters.passing(everything, filters)
    asked = {name: str(value) for name, value in filters.items()}
    by_organization = rows.order_by().values_list("organization_id").annotate(Count("pk"), Max("number"))
    found = {organization: (lines, last) for organization, lines, last in by_organization}
    for organization in {*found, *((None,) if site else audit_organizations(actor))}:
        lines, _ = found.get(organization, (0, 0))
        record(actor, "audit.exported", organization=organization, after={"filters": asked, "lines": lines})
    return AuditExport(rows, max((last for _, last in found.values()), default=0))


def audit_jsonl(export: AuditExport) -> AsyncIterator[bytes]:
    """The lines, batch by batch."""
    return streamed(export.batch)
