"""Reads of exports, scoped to the actor."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet

from agentcore_site.jobs.selectors import as_uuid
from agentcore_site.lib.errors import Missing
from agentcore_site.tenancy.actors import Actor
from experiences.models import TrajectoryExport


def exports_visible(actor: Actor) -> QuerySet[TrajectoryExport]:
    return TrajectoryExport.objects.visible_to(actor).select_related("job__created_by")


def export_get(actor: Actor, export_id: Any) -> TrajectoryExport:
    """Raises:
    Missing: there is no such export, or it belongs to another organisation."""
    found = exports_visible(actor).filter(pk=as_uuid(export_id, "export")).first()
    if found is None:
        raise Missing(f"There is no export {export_id}.")
    return found
