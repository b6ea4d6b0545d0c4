"""Admin of events, notices and webhooks. What the work wrote is read; webhooks are switched through their service."""

from __future__ import annotations

from django.contrib import admin

from agentcore_site.notices.models import (
    Notice,
    NoticePreferences,
    SiteEvent,
    WebhookAttempt,
    WebhookDelivery,
    WebhookEndpoint,
)
from agentcore_site.notices.services import delivery_again, endpoint_remove, endpoint_update
from agentcore_site.tenancy.administration import LongTableAdmin, ReadOnlyAdmin, service_action


@admin.register(SiteEvent)
class SiteEventAdmin(LongTableAdmin):
    list_display = ["type", "text", "owner", "created_at", "spread_at"]
    list_filter = ["type", "organization"]
    list_select_related = ["owner", "organization"]
    search_fields = ["text", "type"]


@admin.register(WebhookEndpoint)
class WebhookEndpointAdmin(ReadOnlyAdmin):
    list_display = ["name", "format", "url", "user", "on", "failing_since", "created_at"]
    list_filter = ["on", "format", "organization"]
    list_select_related = ["user", "organization"]
    search_fields = ["name", "url"]
    exclude = ["sealed_url", "sealed_secret", "sealed_former"]
    actions = ["switch_off", "remove"]

    switch_off = service_action(
        "Switch the selected webhooks off", "Switched off", lambda actor, row: endpoint_update(actor, row, on=False)
    )
    remove = service_action("Remove the selected webhooks", "Removed", endpoint_remove)


@admin.register(WebhookDelivery)
class WebhookDeliveryAdmin(LongTableAdmin):
    list_display = ["event", "endpoint", "tries", "try_after", "taken_at", "given_up_at"]
    list_filter = ["organization"]
    list_select_related = ["event", "endpoint"]
    search_fields = ["event__text"]
    actions = ["again"]

    again = service_action("Send the selected events again", "To be sent again", delivery_again)


@admin.register(WebhookAttempt)
class WebhookAttemptAdmin(LongTableAdmin):
    list_display = ["delivery", "at", "status", "duration_ms", "error", "next_at"]
    list_filter = ["status", "organization"]
    list_select_related = ["delivery"]
    search_fields = ["error"]


@admin.register(Notice)
class NoticeAdmin(LongTableAdmin):
    list_display = ["user", "event", "created_at", "read_at"]
    list_filter = ["organization"]
    list_select_related = ["user", "event"]
    search_fields = ["user__username"]


@admin.register(NoticePreferences)
class NoticePreferencesAdmin(ReadOnlyAdmin):
    list_display = ["user", "organization", "whose", "digest", "time_zone"]
    list_filter = ["digest", "organization"]
    list_select_related = ["user", "organization"]
    search_fields = ["user__username"]
