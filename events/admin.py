"""Admin of events: to be read."""

from __future__ import annotations

from django.contrib import admin

from agentcore_site.tenancy.administration import KeyedTableAdmin, ReadOnlyAdmin
from events.models import EventPublisher, OutboxEvent


@admin.register(OutboxEvent)
class OutboxEventAdmin(KeyedTableAdmin):
    list_display = ["id", "kind", "key", "created_at", "settled_at", "tries", "withheld"]
    list_filter = ["kind"]
    key_fields = ("key", "message_id")


@admin.register(EventPublisher)
class EventPublisherAdmin(ReadOnlyAdmin):
    list_display = ["organization", "created_by", "created_at"]
