"""Admin of the audit log, of the rows that REST itself keeps, and of those of the whole site."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from agentcore_site.audit.models import AuditEvent, ErasedWords, Seal
from agentcore_site.audit_export.models import AuditStream
from agentcore_site.encryption.models import DataKey
from agentcore_site.jobs.models import HostProcess
from agentcore_site.models import IdempotencyRecord, SavedView, SiteFact, TableSize
from agentcore_site.tenancy.admin import ForSuperusers
from agentcore_site.tenancy.administration import LongTableAdmin, ReadOnlyAdmin


@admin.register(AuditEvent)
class AuditEventAdmin(LongTableAdmin):
    """Read-only: the database refuses changes as well."""

    organization_path = "organization_id"
    list_display = ["at", "actor", "action", "target", "door", "ip"]
    list_filter = ["action", ("at", admin.DateFieldListFilter)]
    search_fields = ["actor", "action", "target", "target_id"]
    date_hierarchy = None
    exclude = ["user"]


@admin.register(AuditStream)
class AuditStreamAdmin(ReadOnlyAdmin):
    list_display = ["organization", "url", "paused", "sent_lines", "sent_at", "error", "failing_since"]
    list_filter = ["paused"]
    list_select_related = ["organization"]
    search_fields = ["organization__name", "url"]


@admin.register(IdempotencyRecord)
class IdempotencyRecordAdmin(LongTableAdmin):
    list_display = ["created_at", "operation", "key", "user", "organization", "status"]
    list_filter = ["organization"]
    list_select_related = ["user", "organization"]
    search_fields = ["key", "operation", "user__username"]


@admin.register(SavedView)
class SavedViewAdmin(LongTableAdmin):
    """Created and changed over the lists of the console."""

    list_display = ["name", "page", "person", "organization", "shared", "created_at"]
    list_filter = ["organization", "shared"]
    list_select_related = ["person", "organization"]
    search_fields = ["name", "page", "person__username"]


@admin.register(DataKey)
class DataKeyAdmin(LongTableAdmin):
    """Created and changed on the page *Encryption*."""

    list_display = ["organization", "version", "holder", "active", "created_at"]
    list_filter = ["organization", "active"]
    list_select_related = ["organization"]
    exclude = ["sealed"]


class SiteTableAdmin(ForSuperusers, LongTableAdmin):
    """Rows of the whole site, written by its processes."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """These rows belong to no organisation, so no filter by organisation applies."""
        rows: QuerySet[Any] = self.model._default_manager.all()
        return rows if request.user.is_superuser else rows.none()

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


@admin.register(SiteFact)
class SiteFactAdmin(SiteTableAdmin):
    list_display = ["name", "value", "updated_at"]
    search_fields = ["name"]


@admin.register(HostProcess)
class HostProcessAdmin(SiteTableAdmin):
    list_display = ["name", "host", "pid", "restarts", "started_at", "ticked_at", "seen_at"]
    search_fields = ["name", "host"]


@admin.register(TableSize)
class TableSizeAdmin(SiteTableAdmin):
    list_display = ["day", "name", "size"]
    search_fields = ["name"]


@admin.register(Seal)
class SealAdmin(SiteTableAdmin):
    list_display = ["kind", "id", "top", "sealed_at"]
    list_filter = ["kind"]
    fields = ["kind", "top", "sealed_at"]


@admin.register(ErasedWords)
class ErasedWordsAdmin(SiteTableAdmin):
    list_display = ["number", "erased_at"]
