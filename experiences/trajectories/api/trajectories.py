"""REST: trajectories as lists, one by one, and as exports."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models.functions import Left
from django.http import HttpResponse, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.lib.errors import Invalid
from agentcore_site.lib.texts import uuid_of
from agentcore_site.rest.money import Usd
from agentcore_site.rest.views import ScopedViewSet
from experiences.models import TrajectoryRecord
from experiences.trajectories.annotations.api import AnnotationOut
from experiences.trajectories.annotations.selectors import annotations_of
from experiences.trajectories.archive.reading import job_rows, trajectory_rows
from experiences.trajectories.exports.formats import FORMATS
from experiences.trajectories.exports.rows import as_exported
from experiences.trajectories.exports.selection import export_start
from experiences.trajectories.exports.streams import export_all, stream
from experiences.trajectories.filters import TrajectoryFilters
from experiences.trajectories.presenters.columns import LISTED
from experiences.trajectories.presenters.shapes import ExportOut, TrajectoryColumns, TrajectoryOut
from experiences.trajectories.selectors import group_of, siblings, trajectories_visible, trajectory_get

STREAMED = (*FORMATS, "json")


class TrajectoryRow(TrajectoryColumns):
    """A row of the list: the query is cut to 200 characters, steps are left out."""

    trajectory_id = serializers.UUIDField(source="id")
    query = serializers.CharField(source="short_query")
    cost_usd = Usd(source="cost_micros")


class WholeTrajectoryOut(TrajectoryOut):
    group = serializers.ListField(child=serializers.UUIDField(), help_text="The rollouts of the same query, in order.")
    has_signal = serializers.BooleanField(allow_null=True, help_text="Whether the group's rewards differed.")
    annotations = AnnotationOut(many=True)


FORMAT = OpenApiParameter(
    "format",
    str,
    enum=[*STREAMED],
    default="jsonl",
    description="; ".join(f"`{name}`: {one.says}" for name, one in FORMATS.items()) + "; `json`: at most 10,000.",
)


class TrajectoryViewSet(ScopedViewSet):
    queryset = TrajectoryRecord.objects.none()
    tag = "trajectories"
    serializer_class = WholeTrajectoryOut
    filterset_class = TrajectoryFilters
    lookup_value_converter = "uuid"
    tiebreak = "id"
    known_query = {"export": ("format", *TrajectoryFilters.base_filters)}

    @extend_schema(summary="Search trajectories", responses=TrajectoryRow(many=True))
    def list(self, request: Request) -> Response:
        with job_rows(self.actor, uuid_of(request.query_params.get("job"))):
            rows = trajectories_visible(self.actor).annotate(short_query=Left("query", 200))
            return self.page(rows.only("id", "cost_micros", *LISTED), TrajectoryRow)

    @extend_schema(summary="One trajectory with its steps and advantages")
    def retrieve(self, request: Request, pk: UUID) -> Response:
        with trajectory_rows(self.actor, pk):
            row = trajectory_get(self.actor, pk)
            others = list(siblings(row).values_list("id", flat=True))
        group = group_of(row)
        [whole] = as_exported([row])
        whole["group"] = others
        whole["has_signal"] = group.has_signal if group else None
        whole["annotations"] = AnnotationOut(annotations_of(self.actor, row), many=True).data
        return Response(whole)

    @extend_schema(
        summary="Export trajectories",
        description=(
            "Needs the permission to export; each export is logged. All but `json` are streamed without a limit; "
            "`POST /api/v1/exports` writes a file in the background, whose download can be resumed. "
            "In CSV, text that a spreadsheet would run as a formula gets a quote in front. `sft` takes the successes "
            "where no filter says which, `dpo` pairs the rollouts of each query; of agents that choose actions there "
            "are neither."
        ),
        parameters=[FORMAT],
        filters=True,
        responses={
            (200, "application/json"): ExportOut,
            (200, "application/x-ndjson"): OpenApiResponse(
                OpenApiTypes.STR, "One trajectory, conversation or pair a line."
            ),
            (200, "text/csv"): OpenApiResponse(OpenApiTypes.STR, "One trajectory a row, with a header."),
            (200, "application/vnd.apache.parquet"): OpenApiResponse(OpenApiTypes.BINARY, "One trajectory a row."),
        },
    )
    @action(detail=False, pagination_class=None)
    def export(self, request: Request) -> HttpResponse | StreamingHttpResponse | Response:
        filters, format = export_request(request)
        export = export_start(self.actor, filters, format=format)
        if format == "json":
            return Response(export_all(export))
        response = StreamingHttpResponse(stream(export, format), content_type=FORMATS[format].media)
        response["Content-Disposition"] = f'attachment; filename="{FORMATS[format].name}"'
        return response


def export_request(request: Request) -> tuple[dict[str, Any], str]:
    """(filters, format) of an export's query string.

    Raises:
        Invalid: there is no such format.
    """
    filters = request.query_params.dict()
    format = str(filters.pop("format", "jsonl"))
    if format not in STREAMED:
        message = f"format must be one of {', '.join(STREAMED)}; got {format[:20]!r}."
        raise Invalid(message, fields={"format": message})
    return filters, format
