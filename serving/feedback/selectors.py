"""Reads of feedback."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet

from agentcore_site.jobs.selectors import as_uuid
from agentcore_site.lib.errors import Missing
from agentcore_site.tenancy.actors import Actor
from serving.models import Feedback, ProductionTrace


def feedback_visible(actor: Any) -> QuerySet[Feedback]:
    return Feedback.objects.visible_to(actor).select_related("user")


def feedback_get(actor: Any, feedback_id: Any) -> Feedback:
    """Raises:
    Missing: there is none, or it belongs to another organisation."""
    found = feedback_visible(actor).filter(id=as_uuid(feedback_id, "feedback")).first()
    if found is None:
        raise Missing(f"There is no feedback {str(feedback_id)[:60]}.")
    return found


def trace_of(actor: Any, trace_id: Any) -> ProductionTrace:
    """The trace that feedback is about. A key that may give feedback and see nothing finds it too.

    Raises:
        Missing: there is none, or it belongs to another organisation.
    """
    rows = ProductionTrace.objects.filter(organization__in=Actor.of(actor).organization_ids)
    found = rows.filter(pk=as_uuid(trace_id, "trace")).defer("request", "response").first()
    if found is None:
        raise Missing(f"There is no trace {str(trace_id)[:60]}.")
    return found
