"""Admin of releases, deployments and traces: read-only."""

from __future__ import annotations

from typing import Any

from django.contrib import admin

from agentcore_site.tenancy.administration import LongTableAdmin, ReadOnlyAdmin
from evaluation.serving.models import (
    AgentServing,
    Deployment,
    Feedback,
    LearningLoop,
    LoopRow,
    LoopTurn,
    ProductionTrace,
    Release,
    Suite,
    SuiteResult,
    SuiteRun,
    SuiteVersion,
)


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


@admin.register(AgentServing)
class AgentServingAdmin(ReadOnlyAdmin):
    list_display = ["agent", "release", "most_edits", "edits_by", "while_away_micros", "updated_at"]
    list_filter = ["organization"]
    list_select_related = ["agent", "release__agent", "edits_by"]
    search_fields = ["agent__slug", "agent__name"]


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


@admin.register(Suite)
class SuiteAdmin(ReadOnlyAdmin):
    list_display = ["name", "kind", "description", "created_at", "archived_at"]
    list_filter = ["kind", "organization"]
    search_fields = ["name", "description"]


@admin.register(SuiteVersion)
class SuiteVersionAdmin(LongTableAdmin):
    organization_path = "suite__organization"
    list_display = ["suite", "number", "digest", "created_by", "created_at"]
    list_select_related = ["suite", "created_by"]
    search_fields = ["suite__name", "digest"]
    ordering = ["-created_at"]


@admin.register(SuiteRun)
class SuiteRunAdmin(ReadOnlyAdmin):
    list_display = ["__str__", "status", "score", "passed", "cost_micros"]
    list_filter = ["passed", "job__status", "organization"]
    list_select_related = ["version__suite", "agent", "release__agent", "job"]
    search_fields = ["agent__name", "agent__slug", "version__suite__name", "digest"]
    show_full_result_count = False

    def get_queryset(self, request: Any) -> Any:
        return super().get_queryset(request).defer("bundle", "release__bundle")

    @admin.display(description="status", ordering="job__status")
    def status(self, row: SuiteRun) -> str:
        return str(row.job.get_status_display())


@admin.register(SuiteResult)
class SuiteResultAdmin(LongTableAdmin):
    organization_path = "run__organization"
    list_display = ["run_id", "category", "scenario", "successes", "cost_micros"]
    list_filter = ["category"]
    search_fields = ["query", "run__agent__slug"]
    ordering = ["-id"]


@admin.register(LearningLoop)
class LearningLoopAdmin(ReadOnlyAdmin):
    list_display = ["agent", "on", "acts_as", "after_traces", "daily", "on_drift", "updated_at"]
    list_filter = ["on", "organization"]
    list_select_related = ["agent", "acts_as"]
    search_fields = ["agent__slug", "agent__name"]


@admin.register(LoopTurn)
class LoopTurnAdmin(ReadOnlyAdmin):
    list_display = ["__str__", "trigger", "state", "rows_found", "cost_micros", "created_by", "created_at", "ended_at"]
    list_filter = ["state", "trigger", "organization"]
    list_select_related = ["agent", "created_by"]
    search_fields = ["agent__slug", "agent__name", "reason"]


@admin.register(LoopRow)
class LoopRowAdmin(LongTableAdmin):
    organization_path = "turn__organization"
    list_display = ["turn_id", "source", "state", "decided_by"]
    list_filter = ["state", "source"]
    list_select_related = ["decided_by"]
    search_fields = ["query", "turn__agent__slug"]
    ordering = ["-id"]
