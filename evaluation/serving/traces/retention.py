"""Deletes old production traces with what was thought of them, and what canaries that ended counted."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import QuerySet
from django.utils import timezone

from agentcore_site.lib.retention import kept, old_rows
from evaluation.serving.models import LIVE, CanaryObservation, ProductionTrace


def _before() -> datetime:
    return timezone.now() - timedelta(days=settings.PRODUCTION_TRACE_DAYS)


def traces() -> QuerySet[ProductionTrace]:
    return ProductionTrace.objects.filter(created_at__lt=_before())


def observations() -> QuerySet[CanaryObservation]:
    return CanaryObservation.objects.filter(at__lt=_before()).exclude(deployment__state__in=LIVE)


SETTING = "PRODUCTION_TRACE_DAYS"
old_rows("production traces and sessions", "Deleted, with what was thought of them.", traces, setting=SETTING)
old_rows("what canaries counted", "Deleted once the deployment has ended.", observations, setting=SETTING)
kept("feedback", "Deleted with its trace.", "serving_feedback")
kept(
    "releases and deployments",
    "Kept: they say what was in production, and who approved it.",
    "serving_release",
    "serving_releaseapproval",
    "serving_deployment",
    "serving_deploymentevent",
    "serving_plandelivery",
    "serving_agentserving",
)
kept("spending of keys", "Kept: one row for each key and month.", "serving_keyspending")
kept(
    "suites",
    "Kept, with all versions; runs and their results as long as their job.",
    "serving_suite",
    "serving_suiteversion",
    "serving_suiterun",
    "serving_suiteresult",
)
kept("survival of lessons", "Kept as long as their job.", "serving_survivalrun")
kept(
    "learning loops",
    "Kept: settings, turns, and the rows that a turn may learn from.",
    "serving_learningloop",
    "serving_loopturn",
    "serving_loopturn_suite_runs",
    "serving_looprow",
)
