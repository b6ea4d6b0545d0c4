"""Admin of agents, datasets and trajectories."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from agentcore_site.identity.administration import (
    KeyedTableAdmin,
    LongTableAdmin,
    ReadOnlyAdmin,
    ScopedAdmin,
    list_page,
    service_action,
)
from agentcore_site.lib.errors import DomainError, Invalid
from agentcore_site.lib.texts import uuid_of
from agentcore_site.outbound_settings import check_address
from agentcore_site.tenancy.actors import Actor
from experiences.agents.services.agent_changes import agent_change_check, guarded_values
from experiences.agents.services.agent_philosophy import philosophy_check
from experiences.agents.services.agents import agent_archive, agent_check
from experiences.agents.services.environments import environment_check, new_addresses
from experiences.agents.signals import agent_context_changed
from experiences.lessons.services.lessons import (
    experience_approve,
    experience_prune,
    experience_quarantine,
    experience_restore,
)
from experiences.lessons.services.packs import pack_archive
from experiences.models import (
    Agent,
    Annotation,
    ArchivedJob,
    ArchiveRule,
    ContextDelta,
    Dataset,
    DatasetRow,
    EndpointServer,
    Evolution,
    ExecutionTrace,
    Experience,
    ExperienceChange,
    ExportPart,
    GroupRecord,
    ModelEndpoint,
    Playbook,
    PlaybookChange,
    PlaybookSection,
    PlaybookVersion,
    PromptPack,
    Question,
    ToolServer,
    TrajectoryArchive,
    TrajectoryExport,
    TrajectoryRecord,
)


class AgentAdminForm(forms.ModelForm):  # type: ignore[type-arg]
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
        agent, before = self.instance, self.initial
        try:
            agent_check(agent)
            philosophy_check(agent, None)
            stored = {} if agent._state.adding else guarded_values(Agent.objects.get(pk=agent.pk))
            agent_change_check(agent, stored)
            check_address("url", agent.url, before=before.get("url", ""))
            for address in new_addresses(
                agent.environment, agent.environment_options, before.get("environment_options") or {}
            ):
                check_address("environment", address)
        except DomainError as error:
            for name, text in (error.fields or {"": error.message}).items():
                self.add_error(name if name in self.fields else None, text)


@admin.register(Agent)
class AgentAdmin(ScopedAdmin):
    form = AgentAdminForm
    list_display = ["name", "slug", "organization", "philosophy", "runtime", "environment", "archived_at"]
    list_filter = ["philosophy", "runtime", "environment", ("archived_at", admin.EmptyFieldListFilter), "organization"]
    search_fields = ["name", "slug", "description"]
    autocomplete_fields = ["organization", "endpoint"]
    readonly_fields = ["tool_servers", "granted_tools", "archived_at", "created_by", "created_at", "updated_at"]
    prepopulated_fields = {"slug": ["name"]}
    actions = ["archive"]

    def get_readonly_fields(self, request: HttpRequest, obj: Agent | None = None) -> list[str]:
        actor, right = Actor(request.user), "deployment.edit"
        may = actor.may_somewhere(right) if obj is None else actor.may(right, obj.organization_id)
        return self.readonly_fields if may or request.user.is_superuser else [*self.readonly_fields, "ace_release"]

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        if not change:
            obj.created_by = request.user
        super().save_model(request, obj, form, change)
        agent_context_changed.send(Agent, agent=obj)

    archive = service_action("Archive the selected agents", "Archived", agent_archive)


# Read-only: addresses and keys are changed in the console. A key is never shown there, and is required again when the
# address moves to another host.
list_page(ModelEndpoint, "name organization kind base_url model archived_at")
# Read-only: `manage.py up` writes them, and people start and stop servers in the console.
list_page(EndpointServer, "endpoint organization place source port wanted state restarts memory seen_at")
# Read-only, like model endpoints.
list_page(ToolServer, "name organization transport url command archived_at")
list_page(Dataset, "name organization domain size created_by created_at", search_fields=["name", "domain", "sha256"])
list_page(
    DatasetRow,
    "dataset index __str__",
    LongTableAdmin,
    search_fields=["dataset__name", "query"],
    ordering=["-dataset__created_at", "index"],
)


@admin.register(TrajectoryRecord)
class TrajectoryAdmin(LongTableAdmin):
    """Search takes ids: a trajectory's, a job's or an agent's. The table is partitioned and may hold millions of rows,
    so it is neither counted nor searched by text here (the console and the API do that within a job). The list
    follows the primary key, newest month first; a job's rows come in the order of its training."""

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
        wanted = uuid_of(search_term.strip())
        if not wanted:
            return queryset.none(), False
        if queryset.filter(job_id=wanted).exists():
            return queryset.filter(job_id=wanted).order_by("iteration", "scenario", "rollout"), False
        return queryset.filter(Q(id=wanted) | Q(agent_id=wanted)), False


list_page(
    GroupRecord,
    "job_id iteration scenario query has_signal rewards",
    KeyedTableAdmin,
    key_fields=("job_id",),
    search_help_text="The id of a job.",
)


@admin.register(PromptPack)
class PromptPackAdmin(ReadOnlyAdmin):
    """Read-only: a pack is changed in the console, which stamps it, or loaded from its files."""

    list_display = ["name", "organization", "domain", "experience_slots", "max_words", "stamp", "archived_at"]
    actions = ["archive"]

    archive = service_action("Archive the selected packs", "Archived", pack_archive)


@admin.register(Experience)
class ExperienceAdmin(ReadOnlyAdmin):
    """Lessons are moved here by the services of the console; their text is edited there, where it is checked."""

    list_display = ["handle", "__str__", "agent", "status", "weight", "effect", "rollouts", "version", "created_at"]
    search_fields = ["handle", "summary", "agent__name", "agent__slug"]
    actions = ["restore", "prune", "quarantine", "approve"]

    restore = service_action("Bring the selected lessons back", "Brought back", experience_restore)
    prune = service_action("Take the selected lessons out", "Taken out", experience_prune)
    quarantine = service_action("Put the selected lessons in quarantine", "Put in quarantine", experience_quarantine)
    approve = service_action("Let the selected lessons out of quarantine", "Let out", experience_approve)


list_page(ExperienceChange, "experience action version by at", LongTableAdmin, list_filter=["action"], ordering=["-id"])
list_page(
    Question,
    "stage key agent iteration usable reason tokens cost_micros at",
    LongTableAdmin,
    list_filter=["stage", "usable"],
    ordering=["-id"],
)
# Read-only: a playbook is changed by services, which keep its history.
list_page(
    Playbook,
    "agent organization version section_count evolutions failures",
    list_filter=["agent__evolves", "philosophy", "organization"],
)
list_page(PlaybookVersion, "playbook number action by at", LongTableAdmin, list_filter=["action"], ordering=["-id"])
list_page(PlaybookSection, "playbook handle usage helpful harmful", LongTableAdmin, ordering=["-id"])
list_page(
    PlaybookChange, "playbook handle version action by at", LongTableAdmin, list_filter=["action"], ordering=["-id"]
)
list_page(
    ContextDelta,
    "agent type target confidence state reason by created_at",
    LongTableAdmin,
    list_filter=["state", "type"],
    ordering=["-created_at", "-id"],
)
# The table is long: search takes the slug of an agent or the id of a task.
list_page(
    ExecutionTrace,
    "id agent task_id success duration_ms context_version recorded_at",
    LongTableAdmin,
    list_filter=["success"],
    search_fields=["=agent__slug", "=task_id"],
    ordering=["-recorded_at", "-id"],
)
list_page(
    Evolution,
    "agent job trigger tries version_before version_after settled_at",
    list_filter=["trigger", "organization"],
)
# Written, dropped and deleted by the work alone: each has a file.
list_page(
    TrajectoryArchive,
    "month agent organization state rows size archived_at deleted_at",
    LongTableAdmin,
    search_fields=["agent__name", "sha256"],
)
list_page(ArchivedJob, "job_id archive rows restored_at", KeyedTableAdmin, key_fields=("job_id",))
# Written and deleted by the work alone: an archive has files.
list_page(
    TrajectoryExport,
    "job organization format rows size deleted_at",
    LongTableAdmin,
    list_filter=["format", "organization"],
    ordering=["-job_id"],
)
list_page(ExportPart, "id export number rows size sha256", KeyedTableAdmin, key_fields=("export_id",))
# Written, changed and removed by its author alone, where the right to do so is asked for.
list_page(Annotation, "trajectory_id agent step label score author created_at", LongTableAdmin, ordering=["-id"])
# Changed on the page Storage and over REST, where the right to do so is asked for.
list_page(ArchiveRule, "organization agent keep_days updated_at")
