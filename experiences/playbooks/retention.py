"""Deletes old executions, and old proposed changes that never went into a playbook."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from django.conf import settings
from django.db.models import QuerySet
from django.utils import timezone

from experiences.learning.playbooks.deltas import SETTLED
from experiences.models import ContextDelta, ExecutionTrace

AT_ONCE: Final = 5_000


def forget() -> dict[str, int]:
    """Deletes what is too old. Returns how many rows of each there were."""
    now = timezone.now()
    old_traces = ExecutionTrace.objects.filter(recorded_at__lt=now - timedelta(days=settings.ACE_TRACE_DAYS))
    old_deltas = ContextDelta.objects.filter(created_at__lt=now - timedelta(days=settings.ACE_DELTA_DAYS)).exclude(
        state__in=[str(state) for state in SETTLED]
    )
    return {"traces": _delete(old_traces), "deltas": _delete(old_deltas)}


def _delete(rows: QuerySet[Any]) -> int:
    """In small transactions, so that recording an execution never waits."""
    deleted = 0
    while ids := list(rows.order_by("pk").values_list("pk", flat=True)[:AT_ONCE]):
        deleted += rows.model.objects.filter(pk__in=ids)._raw_delete("default")
    return deleted
