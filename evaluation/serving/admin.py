"""Admin of releases, deployments and traces: read-only."""

from __future__ import annotations

from django.contrib import admin

from agentcore_site.identity.administration import LongTableAdmin, ReadOnlyAdmin, list_page
from evaluation.serving.models import (
    AgentServing,
    CanaryObservation,
    Deployment,
    DeploymentEvent,
    Feedback,
    KeySpending,
    LearningLoop,
    LoopRow,
    LoopTurn,
    PlanDelivery,
    ProductionTrace,
    Release,
    ReleaseApproval,
    Suite,
    SuiteResult,
    SuiteRun,
    SuiteVersion,
    SurvivalRun,
)

list_page(
    Release,
    "__str__ source digest created_by created_at",
    search_fields=["agent__slug", "agent__name", "digest", "note"],
    deferred=("bundle",),
)
list_page(
    Deployment,
    "__str__ strategy state share created_by created_at ended_at",
    list_select_related=["release__agent", "created_by"],
    search_fields=["agent__slug", "agent__name", "note", "reason"],
)
list_page(ReleaseApproval, "release by at", search_fields=["release__agent__slug", "by__username"])
list_page(
    DeploymentEvent,
    "deployment_id kind share by note at",
    LongTableAdmin,
    list_filter=["kind"],
    search_fields=["=deployment__id", "deployment__agent__slug", "note"],
    ordering=["-id"],
)
list_page(
    PlanDelivery,
    "deployment_id tries try_after settled_at created_at",
    LongTableAdmin,
    search_fields=["=deployment__id", "deployment__agent__slug"],
    ordering=["-id"],
)
list_page(
    CanaryObservation,
    "deployment_id session new share failed cost_micros at",
    LongTableAdmin,
    list_filter=["new", "failed"],
    search_fields=["=deployment__id", "=session"],
    ordering=["-id"],
)
list_page(KeySpending, "key_id month spent_micros calls organization", search_fields=["=key_id"])
list_page(AgentServing, "agent release most_edits edits_by while_away_micros updated_at")
list_page(
    ProductionTrace,
    "id agent arm status model cost_micros duration_ms reward created_at",
    search_fields=["=id", "=session", "agent__slug", "model"],
    deferred=("request", "response"),
)
list_page(Feedback, "metric value source giver trace_id updated_at", search_fields=["=trace__id", "metric", "giver"])
list_page(Suite, "name kind description created_at archived_at")
list_page(SuiteVersion, "suite number digest created_by created_at", LongTableAdmin, ordering=["-created_at"])


@admin.register(SuiteRun)
class SuiteRunAdmin(ReadOnlyAdmin):
    list_display = ["__str__", "status", "score", "passed", "cost_micros"]
    list_filter = ["passed", "job__status", "organization"]
    list_select_related = ["version__suite", "agent", "release__agent", "job"]
    search_fields = ["agent__name", "agent__slug", "version__suite__name", "digest"]
    show_full_result_count = False
    deferred = ("bundle", "release__bundle")

    @admin.display(description="status", ordering="job__status")
    def status(self, row: SuiteRun) -> str:
        return str(row.job.get_status_display())


list_page(
    SuiteResult,
    "run_id category scenario successes cost_micros",
    LongTableAdmin,
    list_filter=["category"],
    search_fields=["query", "run__agent__slug"],
    ordering=["-id"],
)
list_page(LearningLoop, "agent on acts_as after_traces daily on_drift updated_at")
list_page(
    LoopTurn,
    "__str__ trigger state rows_found cost_micros created_by created_at ended_at",
    search_fields=["agent__slug", "agent__name", "reason"],
)
list_page(
    LoopRow,
    "turn_id source state decided_by",
    LongTableAdmin,
    search_fields=["query", "turn__agent__slug"],
    ordering=["-id"],
)
list_page(
    SurvivalRun,
    "__str__ pairs out_of_money cost_micros",
    list_select_related=["release__agent"],
    search_fields=["agent__name", "agent__slug", "model", "digest"],
    deferred=("bundle", "release__bundle", "results", "done"),
)
