"""Reads of feedback."""

from __future__ import annotations

import time
from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet

from agentcore_site.jobs.selectors import as_uuid
from agentcore_site.lib.errors import Missing
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require_somewhere
from evaluation.serving.models import Feedback, ProductionTrace

NEW: Final = 10.0  # seconds
LONGEST_WAIT: Final = 1.0


def feedback_visible(actor: Actor) -> QuerySet[Feedback]:
    """Raises:
    Forbidden: the actor's role may not read answers."""
    require_somewhere(actor, "data.view")
    return Feedback.objects.visible_to(actor).select_related("user")


def feedback_get(actor: Actor, feedback_id: Any) -> Feedback:
    """Raises:
    Missing: no such feedback is visible to the actor."""
    found = feedback_visible(actor).filter(id=as_uuid(feedback_id, "feedback")).first()
    if found is None:
        raise Missing(f"There is no feedback {str(feedback_id)[:60]}.")
    return found


def trace_of(actor: Actor, trace_id: Any) -> ProductionTrace:
    """The trace that feedback is about. A key that may give feedback and see nothing finds it too. One of a moment ago
    is waited for: the gateway writes what it answered behind the answer.

    Raises:
        Missing: there is none, or it belongs to another organisation.
    """
    name = as_uuid(trace_id, "trace")
    mine = ProductionTrace.objects.filter(organization__in=Actor.of(actor).organization_ids)
    rows = mine.filter(pk=name).defer("request", "response")
    began = time.monotonic()
    while (found := rows.first()) is None:
        if not _is_new(name) or time.monotonic() - began > LONGEST_WAIT:
            raise Missing(f"There is no trace {str(trace_id)[:60]}.")
        time.sleep(0.02)
    return found


def _is_new(name: UUID) -> bool:
    """Whether a trace of this id, which begins with its time in milliseconds, was made a moment ago."""
    return name.version == 7 and abs(time.time() - (name.int >> 80) / 1e3) < NEW
