"""REST: checkpoints."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpResponse, QueryDict
from django.utils.http import parse_etags, quote_etag
from django_filters import rest_framework as filters
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import (
    OpenApiExample,
    OpenApiParameter,
    OpenApiResponse,
    extend_schema,
    extend_schema_serializer,
)
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.rest.parsing import FileParser, JsonParser, Strict, parsed
from agentcore_site.rest.rows import ReadViewSet
from agentcore_site.tenancy.permissions import require
from experiences.lessons.filters import OfAgent
from experiences.models.agent_lookup import agent_get
from training.models import PolicyCheckpoint
from training.presenters.comparisons import checkpoint_comparison
from training.presenters.shapes import CheckpointOut
from training.selectors.runs import checkpoints_visible
from training.services.checkpoint_uploads import checkpoint_upload, download_name, read_upload
from training.services.checkpoints import checkpoint_download, checkpoint_of, checkpoint_tag


class TagsIn(Strict):
    tags = serializers.ListField(
        child=serializers.CharField(max_length=40, allow_blank=True),
        max_length=50,
        help_text="The whole list. A tagged checkpoint is never pruned.",
    )


class CheckpointFile(Strict):
    agent = serializers.CharField(max_length=60, help_text="By id or slug.")
    sha256 = serializers.CharField(max_length=64, help_text="Of the file.")
    file = serializers.FileField(allow_empty_file=True, help_text="As it was downloaded.")


class CompareQuery(Strict):
    a = serializers.UUIDField()
    b = serializers.UUIDField()


class FigureOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    a = serializers.JSONField(allow_null=True)
    b = serializers.JSONField(allow_null=True)
    difference = serializers.FloatField(allow_null=True)


class SettingOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    a = serializers.JSONField(allow_null=True)
    b = serializers.JSONField(allow_null=True)


class ContextDifferenceOut(serializers.Serializer[Any]):
    handle = serializers.CharField()
    a = serializers.CharField(allow_null=True, help_text="The lesson's text in a; null where a lacks it.")
    b = serializers.CharField(allow_null=True)


@extend_schema_serializer(deprecate_fields=["told"])
class ComparisonOut(serializers.Serializer[Any]):
    a = CheckpointOut()
    b = CheckpointOut()
    same_bytes = serializers.BooleanField()
    same_run = serializers.BooleanField()
    metrics = FigureOut(many=True)
    settings = SettingOut(many=True, help_text="Only what differs between the runs.")
    context_differences = ContextDifferenceOut(
        many=True, allow_null=True, help_text="The lessons that two contexts don't share; null for others."
    )
    told = ContextDifferenceOut(many=True, allow_null=True, help_text="The former name of `context_differences`.")


class CheckpointFilters(OfAgent):
    job = filters.UUIDFilter(field_name="run_id", help_text="The training job.")
    tag = filters.CharFilter(method="tagged", help_text="Carries this tag.")

    class Meta:
        model = PolicyCheckpoint
        fields: list[str] = []

    def tagged(self, rows: QuerySet[PolicyCheckpoint], name: str, value: str) -> QuerySet[PolicyCheckpoint]:
        return rows.filter(tags__contains=[value])


IF_NONE_MATCH = OpenApiParameter(
    "If-None-Match", str, OpenApiParameter.HEADER, description="The SHA-256 that you have, in quotes: then a 304."
)
TAGS = OpenApiExample("Keep it", {"tags": ["release-candidate"]}, request_only=True)


class CheckpointViewSet(ReadViewSet):
    queryset = PolicyCheckpoint.objects.none()
    tag = "checkpoints"
    serializer_class = CheckpointOut
    filterset_class = CheckpointFilters
    lookup_value_converter = "uuid"
    orderings = {"-created_at": "created_at", "iteration": "iteration", "-validation_low": "validation_low"}
    known_query = {"compare": ("a", "b")}
    parser_classes = [JsonParser, FileParser]
    versioned = ("tags", "promoted_at")
    lists = ("List checkpoints", checkpoints_visible)
    reads = ("One checkpoint", checkpoint_of)

    def list(self, request: Request) -> Response:
        """Ordered by validation_low, the list has only checkpoints with a score: with `agent`, its best come first."""
        rows = checkpoints_visible(self.actor)
        by_score = request.query_params.get("ordering", "").lstrip("-") == "validation_low"
        return self.page(rows.filter(validation_low__isnull=False) if by_score else rows, self.serializer_class)

    @extend_schema(
        summary="Upload a checkpoint",
        description="A download that comes back, here or at another site. Refused with the reason if a byte differs"
        " from what the SHA-256 is of, or if it is no checkpoint of this program or not one for this agent. Nothing in"
        " it is executed. One that the agent has and that is damaged gets its bytes back.",
        request={"multipart/form-data": CheckpointFile},
    )
    def create(self, request: Request) -> Response:
        data: Any = request.data
        values = parsed(CheckpointFile, data.dict() if isinstance(data, QueryDict) else data)

        def work() -> Response:
            agent, content = agent_get(self.actor, values["agent"]), read_upload(values["file"])
            made = checkpoint_upload(self.actor, agent, content, sha256=values["sha256"])
            return self.answer(made, status=201)

        return self.once(request, work)

    @extend_schema(summary="Set a checkpoint's tags", request=TagsIn, examples=[TAGS])
    def partial_update(self, request: Request, pk: UUID) -> Response:
        values = parsed(TagsIn, request.data)
        return self.answer(checkpoint_tag(self.actor, checkpoint_of(self.actor, pk), values["tags"]))

    @extend_schema(
        summary="Download a checkpoint",
        parameters=[IF_NONE_MATCH],
        responses={
            (200, "application/octet-stream"): OpenApiTypes.BINARY,
            304: OpenApiResponse(description="You have it."),
        },
    )
    @action(detail=True, pagination_class=None)
    def download(self, request: Request, pk: UUID) -> HttpResponse:
        """The bytes are checked against their SHA-256, which is the ETag. Each download is logged."""
        checkpoint = checkpoint_of(self.actor, pk)
        require(self.actor, "checkpoint.download", checkpoint.organization_id)
        etag = quote_etag(checkpoint.sha256)
        if etag in parse_etags(request.headers.get("If-None-Match", "")):
            return HttpResponse(status=304, headers={"ETag": etag})
        response = HttpResponse(checkpoint_download(self.actor, checkpoint), content_type="application/octet-stream")
        response["ETag"] = etag
        response["Content-Disposition"] = f'attachment; filename="{download_name(checkpoint)}"'
        return response

    @extend_schema(summary="Two checkpoints side by side", parameters=[CompareQuery], responses=ComparisonOut)
    @action(detail=False, pagination_class=None)
    def compare(self, request: Request) -> Response:
        asked = parsed(CompareQuery, request.query_params.dict())
        a, b = (checkpoint_of(self.actor, asked[name]) for name in ("a", "b"))
        sides = {"a": CheckpointOut(a).data, "b": CheckpointOut(b).data}
        compared = checkpoint_comparison(a, b)
        return Response(sides | compared | {"told": compared["context_differences"]})
