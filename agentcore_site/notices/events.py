"""Records events: a row in the transaction of the change."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from agentcore_site.lib.redaction import redacted, stored_text
from agentcore_site.notices.catalogue import EVENT_TYPES
from agentcore_site.notices.models import SiteEvent
from agentcore_site.tenancy.models import Organization, organization_id_of


def event_record(
    organization: Organization | UUID,
    type: str,
    *,  # the fields of the row
    text: str,
    data: dict[str, Any],
    path: str = "",
    agent_id: UUID | None = None,
    owner: Any = None,
) -> SiteEvent:
    """Records an event. Call it in the transaction of the change: receivers are notified after the commit and never
    before, also where a process dies in between.

    ``text``: one sentence for a person. ``data``: for programs, without texts that people wrote. ``path``: of the page
    about it. ``owner``: the person whom it concerns first.
    """
    assert type in EVENT_TYPES, type
    return SiteEvent.objects.create(
        organization_id=organization_id_of(organization),
        type=type,
        text=stored_text(text, 300),
        data=redacted(data),
        path=path,
        agent_id=agent_id,
        owner=owner,
    )
