"""How everything tells that something happened: a row, in the transaction in which it did."""

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
    *,
    text: str,
    data: dict[str, Any],
    path: str = "",
    agent_id: UUID | None = None,
    owner: Any = None,
) -> SiteEvent:
    """Call it in the transaction of what it tells of: no one is told before that is committed, and all who asked for it
    are after, whatever dies in between.

    ``text``: one sentence for a person. ``data``: for programs, without anybody's own words. ``path``: of the page
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
