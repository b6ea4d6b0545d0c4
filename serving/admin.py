"""Admin of releases: to be read."""

from __future__ import annotations

from typing import Any

from django.contrib import admin

from agentcore_site.tenancy.administration import ReadOnlyAdmin
from serving.models import Release


@admin.register(Release)
class ReleaseAdmin(ReadOnlyAdmin):
    list_display = ["__str__", "source", "digest", "created_by", "created_at"]
    list_filter = ["source", "organization"]
    list_select_related = ["agent", "created_by"]
    search_fields = ["agent__slug", "agent__name", "digest", "note"]

    def get_queryset(self, request: Any) -> Any:
        return super().get_queryset(request).defer("bundle")
