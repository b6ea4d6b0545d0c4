"""Admin of evaluations: read-only."""

from __future__ import annotations

from typing import Any

from django.contrib import admin

from agentcore_site.tenancy.administration import LongTableAdmin, ReadOnlyAdmin
from evaluation.models import EvaluationResult, EvaluationRun, HeldOutLook


@admin.register(EvaluationRun)
class EvaluationRunAdmin(ReadOnlyAdmin):
    list_display = ["__str__", "agent", "status", "split", "samples", "final", "verdict"]
    list_filter = ["split", "final", "job__status", "organization"]
    list_select_related = ["job", "agent", "checkpoint", "checkpoint__run"]
    show_full_result_count = False

    def get_queryset(self, request: Any) -> Any:
        return super().get_queryset(request).defer("checkpoint__data")

    @admin.display(description="status", ordering="job__status")
    def status(self, row: EvaluationRun) -> str:
        return str(row.job.get_status_display())

    @admin.display(description="verdict")
    def verdict(self, row: EvaluationRun) -> str:
        return str(row.report.get("verdict", ""))


@admin.register(EvaluationResult)
class EvaluationResultAdmin(LongTableAdmin):
    list_display = ["evaluation", "line", "scenario", "arm", "successes", "cost_micros"]
    list_filter = ["arm", "line"]
    search_fields = ["query", "evaluation__agent__slug"]
    ordering = ["-id"]

    def get_queryset(self, request: Any) -> Any:
        rows = super().get_queryset(request).select_related("evaluation", "evaluation__checkpoint")
        return rows.defer("evaluation__checkpoint__data")


@admin.register(HeldOutLook)
class HeldOutLookAdmin(ReadOnlyAdmin):
    list_display = ["at", "agent", "evaluation", "fingerprint"]

    def get_queryset(self, request: Any) -> Any:
        rows = super().get_queryset(request).select_related("evaluation__checkpoint")
        return rows.defer("evaluation__checkpoint__data")
