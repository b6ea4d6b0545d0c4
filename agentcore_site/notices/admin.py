"""Admin of events, notices and webhooks. What the work wrote is read; webhooks are switched through their service."""

from __future__ import annotations

from django.contrib import admin

from agentcore_site.identity.administration import LongTableAdmin, ReadOnlyAdmin, list_page, service_action
from agentcore_site.notices.models import (
    Notice,
    NoticePreferences,
    SiteEvent,
    WebhookAttempt,
    WebhookDelivery,
    WebhookEndpoint,
)
from agentcore_site.notices.services import delivery_again, endpoint_remove, endpoint_update

list_page(SiteEvent, "type text owner created_at spread_at", LongTableAdmin, list_filter=["type", "organization"])


@admin.register(WebhookEndpoint)
class WebhookEndpointAdmin(ReadOnlyAdmin):
    list_display = ["name", "format", "url", "user", "on", "failing_since", "created_at"]
    exclude = ["sealed_url", "sealed_secret", "sealed_former"]
    actions = ["switch_off", "remove"]

    switch_off = service_action(
        "Switch the selected webhooks off", "Switched off", lambda actor, row: endpoint_update(actor, row, on=False)
    )
    remove = service_action("Remove the selected webhooks", "Removed", endpoint_remove)


@admin.register(WebhookDelivery)
class WebhookDeliveryAdmin(LongTableAdmin):
    list_display = ["event", "endpoint", "tries", "try_after", "taken_at", "given_up_at"]
    actions = ["again"]

    again = service_action("Send the selected events again", "To be sent again", delivery_again)


list_page(
    WebhookAttempt,
    "delivery at status duration_ms error next_at",
    LongTableAdmin,
    list_filter=["status", "organization"],
)
list_page(Notice, "user event created_at read_at", LongTableAdmin)
list_page(NoticePreferences, "user organization whose digest time_zone")
