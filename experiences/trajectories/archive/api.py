"""REST: archives, what they are kept by, and the sizes of the database."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import StreamingHttpResponse
from django_filters import rest_framework as filters
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.audit.services import record
from agentcore_site.lib.errors import Forbidden
from agentcore_site.lib.retention import rules
from agentcore_site.rest.parsing import Strict, parsed
from agentcore_site.rest.row_files import FORMAT, RESPONSES, RowFile, row_file
from agentcore_site.rest.rows import ReadViewSet
from agentcore_site.rest.views import ScopedViewSet
from agentcore_site.storage import storage_usage
from agentcore_site.tenancy.permissions import current_organization, require
from experiences.lessons.filters import OfAgent
from experiences.models import ArchiveRule, ArchiveState, TrajectoryArchive
from experiences.models.agent_lookup import agent_get
from experiences.trajectories.archive.selectors import archive_get, archive_rules_visible, archives_visible
from experiences.trajectories.archive.services import LONGEST, archive_rule_set, restore_ask, retention_start


class ArchiveFilters(OfAgent):
    archive_state = filters.ChoiceFilter(field_name="state", choices=ArchiveState.choices)
    month = filters.DateFilter(field_name="month", help_text="The first day of a month.")

    class Meta:
        model = TrajectoryArchive
        fields: list[str] = []


class ArchiveOut(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    agent_id = serializers.UUIDField()
    month = serializers.DateField()
    archive_state = serializers.ChoiceField(source="state", choices=ArchiveState.choices)
    rows = serializers.IntegerField()
    size_bytes = serializers.IntegerField(source="size")
    sha256 = serializers.CharField()
    jobs = serializers.IntegerField(source="n_jobs")
    jobs_restored = serializers.IntegerField(source="n_restored", help_text="How many are back in the database.")
    archived_at = serializers.DateTimeField(allow_null=True)
    deleted_at = serializers.DateTimeField(allow_null=True)


class RetentionIn(Strict):
    """Nothing can be chosen: what is due is archived."""


class RestoreIn(Strict):
    job = serializers.UUIDField(required=False, help_text="One job of the archive; without it all of them.")


class RetentionJobOut(serializers.Serializer[Any]):
    job_id = serializers.UUIDField(help_text="Its events: `GET /api/v1/jobs/{id}/events`.")


class ArchiveRuleOut(serializers.Serializer[Any]):
    agent_id = serializers.UUIDField(allow_null=True, help_text="Null: of all agents.")
    keep_days = serializers.IntegerField(help_text="0: for ever.")


class ArchiveRuleIn(Strict):
    agent = serializers.CharField(required=False, help_text="Its id or slug; without it the rule is of all agents.")
    keep_days = serializers.IntegerField(min_value=0, max_value=LONGEST, allow_null=True, help_text="Null: no rule.")


class TableUsageOut(serializers.Serializer[Any]):
    table = serializers.CharField(source="name")
    size_bytes = serializers.IntegerField(source="size")
    bytes_per_day = serializers.FloatField(source="growth", allow_null=True)


class RetentionRuleOut(serializers.Serializer[Any]):
    rule = serializers.CharField()
    tables = serializers.ListField(child=serializers.CharField())
    says = serializers.CharField()


class StorageUsageOut(serializers.Serializer[Any]):
    size_bytes = serializers.IntegerField(source="size")
    bytes_per_day = serializers.FloatField(source="growth", allow_null=True, help_text="Null before the second day.")
    free_bytes = serializers.IntegerField(source="free", allow_null=True)
    full_in_days = serializers.FloatField(source="days", allow_null=True)
    tables = TableUsageOut(many=True)
    rules = serializers.SerializerMethodField()

    @extend_schema(responses=RetentionRuleOut(many=True))
    def get_rules(self, _: Any) -> list[dict[str, Any]]:
        return [{"rule": name, "tables": list(rule.tables), "says": rule.says} for name, rule in rules.items()]


class ArchiveViewSet(ReadViewSet):
    """Months of trajectories that are in the object storage, and no longer in the database."""

    queryset = TrajectoryArchive.objects.none()
    tag = "archives"
    serializer_class = ArchiveOut
    filterset_class = ArchiveFilters
    orderings = {"-month": "month", "-size": "size", "-rows": "rows"}
    versioned = ("archive_state", "jobs_restored")
    lookup_value_converter = "uuid"
    known_query = {"export": ("format", *ArchiveFilters.base_filters)}
    idempotent = ("create", "restore")
    lists = ("List archives", archives_visible)
    reads = ("One archive", archive_get)

    @extend_schema(summary="The list of archives as a file", parameters=[FORMAT], responses=RESPONSES, filters=True)
    @action(detail=False, pagination_class=None)
    def export(self, request: Request) -> StreamingHttpResponse:
        """All of them, or those that pass the list's filters. Each export is logged."""
        file = RowFile("archives", self.filter_queryset(archives_visible(self.actor)), ArchiveOut)
        answer = row_file(request, file)
        record(
            self.actor,
            "archives.exported",
            organization=current_organization(self.actor),
            after={"asked": request.query_params.dict()},
        )
        return answer

    @extend_schema(summary="Archive what is due now", request=RetentionIn, responses={201: RetentionJobOut})
    def create(self, request: Request) -> Response:
        parsed(RetentionIn, request.data)
        return self.once(request, lambda: _queued(retention_start(self.actor, current_organization(self.actor))))

    @extend_schema(summary="Bring trajectories back", request=RestoreIn, responses={201: RetentionJobOut})
    @action(detail=True, methods=["post"], pagination_class=None)
    def restore(self, request: Request, pk: UUID) -> Response:
        job = parsed(RestoreIn, request.data).get("job")
        return self.once(request, lambda: _queued(restore_ask(self.actor, archive_get(self.actor, pk), job)))


class ArchiveRuleViewSet(ScopedViewSet):
    """Retention of archives: the agent's rule, else the organisation's, else the site's."""

    queryset = ArchiveRule.objects.none()
    tag = "archives"
    idempotent = ()
    serializer_class = ArchiveRuleOut
    orderings = {"id": "id"}

    @extend_schema(summary="Rules of archives")
    def list(self, request: Request) -> Response:
        return self.page(archive_rules_visible(self.actor), ArchiveRuleOut)

    @extend_schema(summary="Set a rule of archives", request=ArchiveRuleIn, responses={204: None})
    def create(self, request: Request) -> Response:
        given = parsed(ArchiveRuleIn, request.data)
        organization = current_organization(self.actor)
        require(self.actor, "retention.edit", organization)  # before it is said whether there is such an agent
        agent = agent_get(self.actor, given["agent"]) if given.get("agent") else None
        archive_rule_set(self.actor, organization.pk, agent, given["keep_days"])
        return Response(status=204)


class StorageViewSet(ScopedViewSet):
    """Size and growth of the database, and the retention rules."""

    tag = "archives"
    serializer_class = StorageUsageOut

    @extend_schema(summary="Storage and retention")
    def retrieve(self, request: Request) -> Response:
        require(self.actor, "retention.run", current_organization(self.actor))
        if not self.actor.runs_site:
            raise Forbidden("How much the site stores, of all organisations, is for people who run it.")
        return self.answer(storage_usage())


def _queued(job: Any) -> Response:
    return Response({"job_id": job.pk}, status=201)
