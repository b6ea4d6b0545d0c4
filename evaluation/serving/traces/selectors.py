"""Reads of production traces."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

from django.db.models import QuerySet

from agentcore_site.jobs.selectors import as_uuid
from agentcore_site.lib.errors import Missing
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require_somewhere
from evaluation.serving.models import ProductionTrace, Release


def production_traces_visible(actor: Actor) -> QuerySet[ProductionTrace]:
    """Raises:
    Forbidden: the actor's role does not read them."""
    require_somewhere(actor, "data.view")
    return ProductionTrace.objects.visible_to(actor).select_related("agent")


def production_trace_get(actor: Actor, trace_id: Any) -> ProductionTrace:
    """Raises:
    Missing: there is none, or it belongs to another organisation."""
    found = production_traces_visible(actor).filter(pk=as_uuid(trace_id, "trace")).first()
    if found is None:
        raise Missing(f"There is no trace {str(trace_id)[:60]}.")
    return found


def release_numbers(rows: Iterable[ProductionTrace]) -> dict[uuid.UUID, int]:
    """By id, the numbers of the releases that are still there."""
    ids = {row.release_id for row in rows}
    return dict(Release.objects.filter(id__in=ids).values_list("id", "number"))
