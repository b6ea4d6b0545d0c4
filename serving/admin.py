"""Admin of releases, deployments and traces: to be read."""

from __future__ import annotations

from typing import Any

from django.contrib import admin

from agentcore_site.tenancy.administration import ReadOnlyAdmin
from serving.models import Deployment, Feedback, ProductionTrace, Release


@admin.register(Release)
class ReleaseAdmin(ReadOnlyAdmin):
    list_display = ["__str__", "source", "digest", "created_by", "created_at"]
    list_filter = ["source", "organization"]
    list_select_related = ["agent", "created_by"]
    search_fields = ["agent__slug", "agent__name", "digest", "note"]

    def get_queryset(self, request: Any) -> Any:
        return super().get_queryset(request).defer("bundle")


@admin.register(Deployment)
class DeploymentAdmin(ReadOnlyAdmin):
    list_display = ["__str__", "strategy", "state", "share", "created_by", "created_at", "ended_at"]
    list_filter = ["strategy", "state", "organization"]
    list_select_related = ["release__agent", "created_by"]
    search_fields = ["agent__slug", "agent__name", "note", "reason"]


@admin.register(ProductionTrace)
class ProductionTraceAdmin(ReadOnlyAdmin):
    list_display = ["id", "agent", "arm", "status", "model", "cost_micros", "duration_ms", "reward", "created_at"]
    list_filter = ["status", "arm", "organization"]
    list_select_related = ["agent"]
    search_fields = ["=id", "=session", "agent__slug", "model"]

    def get_queryset(self, request: Any) -> Any:
        return super().get_queryset(request).defer("request", "response")


@admin.register(Feedback)
class FeedbackAdmin(ReadOnlyAdmin):
    list_display = ["metric", "value", "source", "giver", "trace_id", "updated_at"]
    list_filter = ["source", "organization"]
    search_fields = ["=trace__id", "metric", "giver"]
