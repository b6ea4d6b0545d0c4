"""Deletes old production traces with what was thought of them, and what canaries that ended counted."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from django.conf import settings
from django.db.models import QuerySet
from django.utils import timezone

from serving.models import LIVE, CanaryObservation, ProductionTrace

AT_ONCE: Final = 2_000


def traces_forget() -> dict[str, int]:
    """Deletes what is older than ``PRODUCTION_TRACE_DAYS``. Returns how many rows of each there were."""
    before = timezone.now() - timedelta(days=settings.PRODUCTION_TRACE_DAYS)
    counted = CanaryObservation.objects.filter(at__lt=before).exclude(deployment__state__in=LIVE)
    return {
        "traces": _delete(ProductionTrace.objects.filter(created_at__lt=before)),
        "observations": _delete(counted),
    }


def _delete(rows: QuerySet[Any]) -> int:
    """In small transactions, so that storing a trace never waits."""
    deleted = 0
    while ids := list(rows.order_by("pk").values_list("pk", flat=True)[:AT_ONCE]):
        rows.model._base_manager.filter(pk__in=ids).delete()
        deleted += len(ids)
    return deleted
