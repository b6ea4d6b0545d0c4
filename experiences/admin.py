"""Admin of agents, datasets and what was lived through."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from unfold.decorators import action

from agentcore_site.errors import DomainError, Invalid
from agentcore_site.jobs.admin import as_id
from agentcore_site.tenancy.administration import LongTableAdmin, ReadOnlyAdmin, ScopedAdmin
from experiences.models import Agent, Dataset, DatasetRow, GroupRecord, ModelEndpoint, ToolServer, TrajectoryRecord
from experiences.services.agents import agent_archive, agent_check, environment_check


class AgentForm(forms.ModelForm):  # type: ignore[type-arg]
    """The checks of the service: an environment that refuses its options is refused here too."""

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        environment, options = cleaned.get("environment"), cleaned.get("environment_options")
        if environment and environment != "dataset" and isinstance(options, dict):
            try:
                environment_check(environment, options)
            except Invalid as error:
                self.add_error("environment", error.message)
        return cleaned

    def _post_clean(self) -> None:
        super()._post_clean()  # type: ignore[misc]
        if self.errors:
            return
        try:
            agent_check(self.instance)
        except DomainError as error:
            for name, text in (error.fields or {"": error.message}).items():
                self.add_error(name if name in self.fields else None, text)


@admin.register(Agent)
class AgentAdmin(ScopedAdmin):
    form = AgentForm
    list_display = ["name", "slug", "organization", "philosophy", "runtime", "environment", "archived_at"]
    list_filter = ["philosophy", "runtime", "environment", ("archived_at", admin.EmptyFieldListFilter), "organization"]
    list_select_related = ["organization"]
    search_fields = ["name", "slug", "description"]
    autocomplete_fields = ["organization", "endpoint", "tool_servers"]
    readonly_fields = ["archived_at", "created_by", "created_at", "updated_at"]
    prepopulated_fields = {"slug": ["name"]}
    actions = ["archive"]

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        if not change:
            obj.created_by = request.user
        super().save_model(request, obj, form, change)

    @action(description="Archive the selected agents")
    def archive(self, request: HttpRequest, queryset: QuerySet[Agent]) -> None:
        self.apply(request, queryset, "Archived", agent_archive)


@admin.register(ModelEndpoint)
class ModelEndpointAdmin(ReadOnlyAdmin):
    """To be read: addresses and keys are changed in the console, where a key is never shown and is asked for anew when
    the address moves to another host."""

    list_display = ["name", "organization", "kind", "base_url", "model", "archived_at"]
    list_filter = ["kind", ("archived_at", admin.EmptyFieldListFilter), "organization"]
    list_select_related = ["organization"]
    search_fields = ["name", "base_url", "model"]


@admin.register(ToolServer)
class ToolServerAdmin(ReadOnlyAdmin):
    """To be read, like model endpoints."""

    list_display = ["name", "organization", "transport", "url", "command", "archived_at"]
    list_filter = ["transport", ("archived_at", admin.EmptyFieldListFilter), "organization"]
    list_select_related = ["organization"]
    search_fields = ["name", "url", "command"]


@admin.register(Dataset)
class DatasetAdmin(ReadOnlyAdmin):
    list_display = ["name", "organization", "size", "created_by", "created_at"]
    list_filter = ["organization"]
    list_select_related = ["organization", "created_by"]
    search_fields = ["name", "sha256"]


@admin.register(DatasetRow)
class DatasetRowAdmin(LongTableAdmin):
    organization_path = "dataset__organization"
    list_display = ["dataset", "index", "__str__"]
    list_select_related = ["dataset"]
    search_fields = ["dataset__name", "query"]
    ordering = ["-dataset__created_at", "index"]


@admin.register(TrajectoryRecord)
class TrajectoryAdmin(LongTableAdmin):
    """Search takes ids: a trajectory's, a job's or an agent's. The table is partitioned and may hold millions of rows,
    so it is neither counted nor searched by text here (the console and the API do that within a job), and the list
    follows the primary key, newest month first; a job's rows come in the order of its training."""

    organization_path = "organization_id"
    list_display = [
        "id",
        "job_id",
        "purpose",
        "iteration",
        "scenario",
        "rollout",
        "success",
        "reward",
        "n_steps",
        "created_at",
    ]
    list_filter = ["purpose", "success", "truncated"]
    search_fields = ["id"]
    search_help_text = "The id of a trajectory, a job or an agent."
    ordering = ["-month", "-id"]
    sortable_by: list[str] = []

    def get_queryset(self, request: HttpRequest) -> QuerySet[TrajectoryRecord]:
        rows = super().get_queryset(request)
        match = request.resolver_match
        # The list reads narrow rows; one trajectory is read whole.
        listing = match is not None and "object_id" not in match.kwargs
        return rows.defer("steps", "evidence", "components", "query") if listing else rows

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Any], search_term: str) -> Any:
        if not search_term:
            return queryset, False
        wanted = as_id(search_term)
        if not wanted:
            return queryset.none(), False
        if queryset.filter(job_id=wanted).exists():
            return queryset.filter(job_id=wanted).order_by("iteration", "scenario", "rollout"), False
        return queryset.filter(Q(id=wanted) | Q(agent_id=wanted)), False


@admin.register(GroupRecord)
class GroupAdmin(LongTableAdmin):
    organization_path = "organization_id"
    list_display = ["job_id", "iteration", "scenario", "query", "has_signal", "rewards"]
    list_filter = ["has_signal"]
    search_fields = ["job_id"]
    search_help_text = "The id of a job."
    ordering = ["-id"]

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Any], search_term: str) -> Any:
        if not search_term:
            return queryset, False
        wanted = as_id(search_term)
        return (queryset.filter(job_id=wanted) if wanted else queryset.none()), False
