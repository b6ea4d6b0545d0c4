"""REST: exports that a job writes, and their files."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpResponseBase
from django_filters import rest_framework as filters
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.jobs.models import Job, Status
from agentcore_site.lib.errors import Invalid
from agentcore_site.rest.parsing import Strict, parsed
from agentcore_site.rest.rows import ReadViewSet
from experiences.models import TrajectoryExport
from experiences.trajectories.exports.downloads import file_answer
from experiences.trajectories.exports.formats import FORMATS
from experiences.trajectories.exports.presenters import ExportJobOut
from experiences.trajectories.exports.selectors import export_get, exports_visible
from experiences.trajectories.exports.services import export_cancel, export_file, export_queue

EXAMPLE = OpenApiExample(
    "Pairs of a job", {"format": "dpo", "filters": {"job": "018f6d2a-0000-7000-8000-000000000000"}}, request_only=True
)


class ExportListFilters(filters.FilterSet):
    status = filters.ChoiceFilter(field_name="job__status", choices=Status.choices)
    export_format = filters.ChoiceFilter(field_name="format", choices=[(name, name) for name in FORMATS])

    class Meta:
        model = TrajectoryExport
        fields: list[str] = []


class ExportIn(Strict):
    format = serializers.ChoiceField(choices=[*FORMATS], default="jsonl")
    filters = serializers.DictField(
        required=False, help_text="By the names of the query parameters of `GET /api/v1/trajectories`."
    )


class ExportPartOut(serializers.Serializer[Any]):
    part = serializers.IntegerField(source="number")
    rows = serializers.IntegerField()
    size_bytes = serializers.IntegerField(source="size")
    sha256 = serializers.CharField(help_text="Of what is downloaded as this part.")


class WholeExportOut(ExportJobOut):
    parts = ExportPartOut(many=True)


class ExportViewSet(ReadViewSet):
    """Exports of trajectories that are written in the background."""

    queryset = TrajectoryExport.objects.none()
    tag = "exports"
    serializer_class = WholeExportOut
    filterset_class = ExportListFilters
    orderings = {"-created_at": "job__created_at"}
    versioned, locks = ("status", "deleted_at"), Job
    lookup_value_converter = "uuid"
    known_query = {"download": ("part",)}
    list_class = ExportJobOut
    lists = ("List exports", exports_visible)
    reads = ("One export with its parts", lambda actor, pk: _with_parts(export_get(actor, pk)))

    @extend_schema(
        summary="Write an export in the background",
        description=(
            "Needs the permission to export. A job writes all trajectories that began up to now and pass the filters;"
            " its progress is here and at `GET /api/v1/jobs/{id}/events`. The file is kept for some days."
        ),
        request=ExportIn,
        examples=[EXAMPLE],
    )
    def create(self, request: Request) -> Response:
        given = parsed(ExportIn, request.data)

        def queued() -> Response:
            made = export_queue(self.actor, given.get("filters") or {}, format=given["format"])
            return self.answer(_with_parts(made), status=201)

        return self.once(request, queued)

    @extend_schema(summary="Cancel an export", description="What was written is deleted.")
    @action(detail=True, methods=["post"], pagination_class=None)
    def cancel(self, request: Request, pk: UUID) -> Response:
        export_cancel(self.actor, export_get(self.actor, pk))
        return self.answer(_with_parts(export_get(self.actor, pk)))

    @extend_schema(
        summary="Download the file of an export",
        description=(
            "Asks for the permission to export each time, and each download is logged. `Range` with `If-Range` resumes"
            " one. Several parts of Parquet are files of their own: without `part` they come as a tar archive."
        ),
        parameters=[OpenApiParameter("part", int, description="One part, from 1, instead of the whole file.")],
        responses={
            (200, "application/octet-stream"): OpenApiResponse(OpenApiTypes.BINARY, "The file, by its own type."),
            (206, "application/octet-stream"): OpenApiResponse(OpenApiTypes.BINARY, "The range that was asked for."),
            416: OpenApiResponse(description="The file ends before the range."),
        },
    )
    @action(detail=True, pagination_class=None)
    def download(self, request: Request, pk: UUID) -> HttpResponseBase:
        part = _part(request)
        export = export_get(self.actor, pk)
        return file_answer(request._request, export_file(self.actor, export, part=part))


def _part(request: Request) -> int | None:
    asked = request.query_params.get("part")
    if asked is None:
        return None
    if not asked.isascii() or not asked.isdigit() or len(asked) > 6:
        raise Invalid("part must be a whole number.", fields={"part": "A whole number."})
    return int(asked)


def _with_parts(export: TrajectoryExport) -> dict[str, Any]:
    names = ("pk", "format", "filters", "job", "read", "rows", "size", "kept_until", "deleted_at")
    return {**{name: getattr(export, name) for name in names}, "parts": list(export.parts.all())}
