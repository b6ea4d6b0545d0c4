"""Admin of the audit log and of the rows that REST itself keeps."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest

from agentcore_site.audit.models import AuditEvent
from agentcore_site.models import IdempotencyRecord, SiteFact
from agentcore_site.tenancy.admin import ForSuperusers
from agentcore_site.tenancy.administration import LongTableAdmin


@admin.register(AuditEvent)
class AuditEventAdmin(LongTableAdmin):
    """Neither added, changed nor deleted: the database would refuse it as well."""

    organization_path = "organization_id"
    list_display = ["at", "actor", "action", "target", "door", "ip"]
    list_filter = ["action", ("at", admin.DateFieldListFilter)]
    search_fields = ["actor", "action", "target", "target_id"]
    date_hierarchy = None
    exclude = ["user"]


@admin.register(IdempotencyRecord)
class IdempotencyRecordAdmin(LongTableAdmin):
    list_display = ["created_at", "operation", "key", "user", "organization", "status"]
    list_filter = ["organization"]
    list_select_related = ["user", "organization"]
    search_fields = ["key", "operation", "user__username"]


@admin.register(SiteFact)
class SiteFactAdmin(ForSuperusers, LongTableAdmin):
    """Facts about the whole site, written by processes as they start."""

    list_display = ["name", "value", "updated_at"]
    search_fields = ["name"]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False
