"""Retention of notifications."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from django.db.models import QuerySet
from django.utils import timezone

from agentcore_site.lib.retention import RetentionRule, kept, old_rows, rows_delete, rules
from agentcore_site.notices.models import SiteEvent, WebhookAttempt

EVENT_DAYS: Final = 90
ATTEMPT_DAYS: Final = 30


def old_events() -> QuerySet[SiteEvent]:
    return SiteEvent.objects.filter(created_at__lt=timezone.now() - timedelta(days=EVENT_DAYS)).exclude(spread_at=None)


def old_attempts() -> QuerySet[WebhookAttempt]:
    return WebhookAttempt.objects.filter(at__lt=timezone.now() - timedelta(days=ATTEMPT_DAYS))


def events_age() -> int:
    return rows_delete(old_events())


rules.register("events that were told")(
    RetentionRule(
        ("notices_siteevent", "notices_notice", "notices_webhookdelivery"),
        f"Deleted after {EVENT_DAYS} days, with their notices and their deliveries to webhooks.",
        due=lambda: old_events().count(),
        age=events_age,
    )
)
old_rows("attempts of webhooks", f"Deleted after {ATTEMPT_DAYS} days.", old_attempts, raw=True)
kept("webhooks", "Kept until a person removes them.", "notices_webhookendpoint")
kept("notice preferences", "Kept as long as their person.", "notices_noticepreferences")
