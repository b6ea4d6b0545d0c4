"""Admin of evaluations: read-only."""

from __future__ import annotations

from django.contrib import admin

from agentcore_site.identity.administration import LongTableAdmin, ReadOnlyAdmin, list_page
from evaluation.models import EvaluationResult, EvaluationRun, HeldOutUse


@admin.register(EvaluationRun)
class EvaluationRunAdmin(ReadOnlyAdmin):
    list_display = ["__str__", "agent", "status", "split", "samples", "final", "verdict"]
    list_filter = ["split", "final", "job__status", "organization"]
    list_select_related = ["job", "agent", "checkpoint", "checkpoint__run"]
    show_full_result_count = False
    deferred = ("checkpoint__data",)

    @admin.display(description="status", ordering="job__status")
    def status(self, row: EvaluationRun) -> str:
        return str(row.job.get_status_display())

    @admin.display(description="verdict")
    def verdict(self, row: EvaluationRun) -> str:
        return str(row.report.get("verdict", ""))


list_page(
    EvaluationResult,
    "evaluation line scenario arm successes cost_micros",
    LongTableAdmin,
    list_filter=["arm", "line"],
    list_select_related=["evaluation__checkpoint"],
    search_fields=["query", "evaluation__agent__slug"],
    ordering=["-id"],
    deferred=("evaluation__checkpoint__data",),
)
list_page(
    HeldOutUse,
    "at agent evaluation fingerprint",
    list_select_related=["agent", "evaluation__checkpoint"],
    deferred=("evaluation__checkpoint__data",),
)
