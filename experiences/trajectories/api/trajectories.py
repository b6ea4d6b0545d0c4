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
from agentcore_site.lib.money import dollars
from agentcore_site.lib.texts import uuid_of
from agentcore_site.rest.views import ScopedViewSet
from experiences.models import TrajectoryRecord
from experiences.trajectories.archive.reading import job_rows, trajectory_rows
from experiences.trajectories.exports import as_exported, export_all, export_start, stream
from experiences.trajectories.filters import TrajectoryFilters
from experiences.trajectories.presenters.shapes import LISTED, ExportOut, TrajectoryColumns, TrajectoryOut
from experiences.trajectories.selectors import group_of, siblings, trajectories_visible, trajectory_get

MEDIA = {"jsonl": "application/x-ndjson", "csv": "text/csv; charset=utf-8", "json": "application/json"}


class TrajectoryRow(TrajectoryColumns):
    """A row of the list: the query is cut to 200 characters, steps are left out."""

    trajectory_id = serializers.UUIDField(source="id")
    query = serializers.CharField(source="short_query")
    cost_usd = serializers.SerializerMethodField()

    def get_cost_usd(self, row: TrajectoryRecord) -> float:
        return dollars(row.cost_micros)


class WholeTrajectoryOut(TrajectoryOut):
    group = serializers.ListField(child=serializers.UUIDField(), help_text="The rollouts of the same query, in order.")
    has_signal = serializers.BooleanField(allow_null=True, help_text="Whether the group's rewards differed.")


FORMAT = OpenApiParameter(
    "format", str, enum=[*MEDIA], default="jsonl", description="jsonl and csv are streamed; json takes at most 10,000."
)


class TrajectoryViewSet(ScopedViewSet):
    queryset = TrajectoryRecord.objects.none()
    filterset_class = TrajectoryFilters
    lookup_value_converter = "uuid"
    tiebreak = "id"
    known_query = {"export": ("format", *TrajectoryFilters.base_filters)}

    @extend_schema(summary="Search trajectories", tags=["trajectories"], responses=TrajectoryRow(many=True))
    def list(self, request: Request) -> Response:
        with job_rows(self.actor, uuid_of(request.query_params.get("job"))):
            rows = trajectories_visible(self.actor).annotate(short_query=Left("query", 200))
            return self.page(rows.only("id", "cost_micros", *LISTED), TrajectoryRow)

    @extend_schema(
        summary="One trajectory with its steps and advantages", tags=["trajectories"], responses=WholeTrajectoryOut
    )
    def retrieve(self, request: Request, pk: UUID) -> Response:
        with trajectory_rows(self.actor, pk):
            row = trajectory_get(self.actor, pk)
            others = list(siblings(row).values_list("id", flat=True))
        group = group_of(row)
        [whole] = as_exported([row])
        whole["group"] = others
        whole["has_signal"] = group.has_signal if group else None
        return Response(whole)

    @extend_schema(
        summary="Export trajectories",
        description=(
            "Needs the permission to export; each export is logged. `jsonl` and `csv` are streamed without a limit. "
            "In CSV, text that a spreadsheet would run as a formula gets a quote in front."
        ),
        tags=["trajectories"],
        parameters=[FORMAT],
        responses={
            (200, "application/json"): ExportOut,
            (200, "application/x-ndjson"): OpenApiResponse(OpenApiTypes.STR, "One trajectory a line."),
            (200, "text/csv"): OpenApiResponse(OpenApiTypes.STR, "One trajectory a row, with a header."),
        },
    )
    @action(detail=False, pagination_class=None)
    def export(self, request: Request) -> HttpResponse | StreamingHttpResponse | Response:
        filters, format = export_request(request)
        export = export_start(self.actor, filters, format=format)
        if format == "json":
            return Response(export_all(export))
        response = StreamingHttpResponse(stream(export, format), content_type=MEDIA[format])
        response["Content-Disposition"] = f'attachment; filename="trajectories.{format}"'
        return response


def export_request(request: Request) -> tuple[dict[str, Any], str]:
    """(filters, format) of an export's query string.

    Raises:
        Invalid: there is no such format.
    """
    filters = request.query_params.dict()
    format = str(filters.pop("format", "jsonl"))
    if format not in MEDIA:
        message = f"format must be one of {', '.join(MEDIA)}; got {format[:20]!r}."
        raise Invalid(message, fields={"format": message})
    return filters, format
