"""Admin of the audit log, of the rows that REST itself keeps, and of those of the whole site."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from agentcore_site.audit.models import AuditEvent, ErasedWords, Seal
from agentcore_site.audit_export.models import AuditStream
from agentcore_site.encryption.models import DataKey
from agentcore_site.identity.admin import ForSuperusers
from agentcore_site.identity.administration import LongTableAdmin, list_page
from agentcore_site.jobs.models import HostProcess
from agentcore_site.models import IdempotencyRecord, SavedView, SiteFact, TableSize

# Read-only: the database refuses changes as well.
list_page(
    AuditEvent,
    "at actor action target door ip",
    LongTableAdmin,
    organization_path="organization_id",
    list_filter=["action", ("at", admin.DateFieldListFilter)],
    search_fields=["actor", "action", "target", "target_id"],
    exclude=["user"],
)
list_page(AuditStream, "organization url paused sent_lines sent_at error failing_since")
list_page(IdempotencyRecord, "created_at operation key user organization status", LongTableAdmin)
# Created and changed over the lists of the console.
list_page(SavedView, "name page person organization shared created_at", LongTableAdmin)
# Created and changed on the page *Encryption*.
list_page(DataKey, "organization version holder active created_at", LongTableAdmin, exclude=["sealed"])


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


list_page(SiteFact, "name value updated_at", SiteTableAdmin)
list_page(HostProcess, "name host pid restarts started_at ticked_at seen_at", SiteTableAdmin)
list_page(TableSize, "day name size", SiteTableAdmin)
list_page(Seal, "kind id top sealed_at", SiteTableAdmin, list_filter=["kind"], fields=["kind", "top", "sealed_at"])
list_page(ErasedWords, "number erased_at", SiteTableAdmin)
