"""REST: datasets, from JSON rows or from a file. Here and not in experiences: training checks the rows."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import QueryDict, StreamingHttpResponse
from django_filters import rest_framework as filters
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.audit.services import record
from agentcore_site.rest.filters import Flag
from agentcore_site.rest.parsing import FileParser, JsonParser, Strict, parsed, refuse_unknown
from agentcore_site.rest.row_files import FORMAT, RESPONSES, row_file
from agentcore_site.rest.rows import ReadViewSet
from agentcore_site.rest.views import ScopedViewSet
from agentcore_site.tenancy.permissions import current_organization, require
from experiences.agents.selectors import dataset_get, dataset_rows_visible, datasets_visible
from experiences.agents.services.datasets import dataset_archive, dataset_create, dataset_restore, dataset_update
from experiences.models import Dataset, DatasetRow
from experiences.models.trajectories import DatasetOrigin
from experiences.trajectories.filters import TrajectoryFilters
from training.config.validation import MAX_QUERIES
from training.data.annotated import dataset_from_annotated
from training.data.kept_checks import checks_of
from training.data.mapping import ColumnMapping
from training.data.uploads import clean_rows, read_rows
from training.presenters.dataset_files import DatasetOut, RowIn, RowOut, dataset_file


class NumberedRowOut(RowOut):
    index = serializers.IntegerField()


class RowFlagOut(serializers.Serializer[Any]):
    index = serializers.IntegerField(help_text="Of the row, from 0.")
    kind = serializers.ChoiceField(choices=["duplicate", "contradiction", "injection"])
    words = serializers.CharField()


class DatasetChecksOut(serializers.Serializer[Any]):
    rows = serializers.IntegerField()
    distinct = serializers.IntegerField(help_text="Queries that differ, case and white space aside.")
    top_share = serializers.FloatField(help_text="Share of the rows with the most frequent expected outcome.")
    top_outcome = serializers.CharField()
    one_sided = serializers.BooleanField(help_text="That share is so large that always answering it pays.")
    flags = RowFlagOut(many=True)


@extend_schema_field(RowIn(many=True))
class RowsField(serializers.ListField):
    """Rows of queries. Their content is checked where every interface checks it, with the number of the wrong row."""


class DatasetIn(Strict):
    name = serializers.CharField(max_length=120)
    domain = serializers.CharField(
        max_length=60, required=False, allow_blank=True, help_text="As prompt packs name it."
    )
    rows = RowsField(help_text=f"At most {MAX_QUERIES:,} rows.")
    follows = serializers.UUIDField(required=False, help_text="The dataset of which this is the next version.")


class DatasetFile(Strict):
    name = serializers.CharField(max_length=120, required=False, help_text="Default: the file's name.")
    domain = serializers.CharField(
        max_length=60, required=False, allow_blank=True, help_text="As prompt packs name it."
    )
    follows = serializers.UUIDField(required=False, help_text="The dataset of which this is the next version.")
    query_column = serializers.CharField(
        max_length=200, required=False, help_text="The column of queries; guessed from the names of columns."
    )
    answer_column = serializers.CharField(
        max_length=200, required=False, allow_blank=True, help_text="The column of answers; with query_column only."
    )
    file = serializers.FileField(help_text="JSONL, JSON, CSV, TSV or Parquet, each also in gzip.")


class AnnotatedIn(Strict):
    filters = serializers.DictField(
        child=serializers.CharField(max_length=500),
        default=dict,
        help_text="As the list of trajectories takes them; or `trajectory` alone, an id.",
    )
    answer = serializers.CharField(
        max_length=10_000, required=False, allow_blank=True, help_text="The correct one, of a single trajectory."
    )
    name = serializers.CharField(max_length=120, required=False, help_text="Default: the agents'.")
    follows = serializers.UUIDField(required=False, help_text="The dataset of which this is the next version.")


class DatasetPatch(Strict):
    name = serializers.CharField(max_length=120, required=False)
    domain = serializers.CharField(
        max_length=60, required=False, allow_blank=True, help_text="What its queries are about; empty: nothing."
    )


class DatasetFilters(filters.FilterSet):
    search = filters.CharFilter(field_name="name", lookup_expr="icontains", help_text="Text in the name.")
    domain = filters.CharFilter(field_name="domain", lookup_expr="iexact", help_text="What its queries are about.")
    archived = Flag(
        field_name="archived_at", lookup_expr="isnull", exclude=True, help_text="Only archived ones, or none."
    )

    class Meta:
        model = Dataset
        fields: list[str] = []


ROWS = OpenApiExample(
    "Two queries",
    {
        "name": "capitals",
        "rows": [
            {"query": "What is the capital of France?", "expected_outcome": {"answer": "Paris"}},
            {"query": "What is the capital of Japan?", "expected_outcome": {"answer": "Tokyo"}},
        ],
    },
    request_only=True,
    media_type="application/json",
)


class DatasetViewSet(ReadViewSet):
    queryset = Dataset.objects.none()
    tag = "datasets"
    serializer_class = DatasetOut
    filterset_class = DatasetFilters
    lookup_value_converter = "uuid"
    parser_classes = (JsonParser, FileParser)
    versioned = ("name", "domain", "archived_at")
    known_query = {"download": ("format",)}
    idempotent = ("create", "annotated")
    lists = ("List datasets", datasets_visible)
    reads = ("One dataset", dataset_get)

    @extend_schema(
        summary="Store a dataset",
        request={"application/json": DatasetIn, "multipart/form-data": DatasetFile},
        examples=[ROWS],
    )
    def create(self, request: Request) -> Response:
        """As JSON, or as a file in `multipart/form-data`. The same rows twice are one dataset."""
        values = read_request(request)
        if follows := values.pop("follows", None):
            values["follows"] = dataset_get(self.actor, follows)
        return self.made(request, lambda: dataset_create(self.actor, **values))

    @extend_schema(
        summary="Make a dataset of annotated trajectories",
        description="Of those that pass the filters, or of one (`trajectory`): each query with the answer that a person"
        " gave, or with its own where that was good.",
        request=AnnotatedIn,
        responses={201: DatasetOut},
    )
    @action(detail=False, methods=["post"], parser_classes=[JsonParser], pagination_class=None, filter_backends=[])
    def annotated(self, request: Request) -> Response:
        values = parsed(AnnotatedIn, request.data)
        require(self.actor, "dataset.edit", current_organization(self.actor))  # before it is said what is there
        asked = values.pop("filters")
        refuse_unknown(asked, [*TrajectoryFilters.base_filters, "trajectory"], "filter")
        if follows := values.pop("follows", None):
            values["follows"] = dataset_get(self.actor, follows)

        return self.made(request, lambda: dataset_from_annotated(self.actor, asked, **values))

    @extend_schema(summary="Rename a dataset, or say what it is about", request=DatasetPatch)
    def partial_update(self, request: Request, pk: UUID) -> Response:
        """Its rows never change. Jobs keep the prompt pack that they were launched with."""
        values = parsed(DatasetPatch, request.data)
        return self.answer(dataset_update(self.actor, dataset_get(self.actor, pk), **values))

    @action(detail=True, methods=["post"], name="Archive a dataset")
    def archive(self, request: Request, pk: UUID) -> Response:
        """It is not offered any more, and no new job trains on it. Jobs that do go on."""
        return self.answer(dataset_archive(self.actor, dataset_get(self.actor, pk)))

    @action(detail=True, methods=["post"], name="Restore a dataset")
    def restore(self, request: Request, pk: UUID) -> Response:
        return self.answer(dataset_restore(self.actor, dataset_get(self.actor, pk)))

    @extend_schema(summary="Problems of a dataset's rows", responses=DatasetChecksOut)
    @action(detail=True)
    def checks(self, request: Request, pk: UUID) -> Response:
        """Duplicates, contradictions, possible attacks, one-sided outcomes. Flags are places to look."""
        return Response(DatasetChecksOut(checks_of(dataset_get(self.actor, pk))).data)

    @extend_schema(summary="Download a dataset's rows", parameters=[FORMAT], responses=RESPONSES)
    @action(detail=True, pagination_class=None)
    def download(self, request: Request, pk: UUID) -> StreamingHttpResponse:
        """JSONL is what an upload takes. In CSV `expected_outcome` and `metadata` are JSON. Each download is logged."""
        one = dataset_get(self.actor, pk)
        answer = row_file(request, dataset_file(self.actor, one))
        record(self.actor, "dataset.downloaded", one, after={"size": one.size})
        return answer


class RowViewSet(ScopedViewSet):
    queryset = DatasetRow.objects.none()
    tag = "datasets"
    serializer_class = NumberedRowOut
    orderings = {"index": "index"}

    @extend_schema(summary="A dataset's rows")
    def list(self, request: Request, dataset: UUID) -> Response:
        return self.page(dataset_rows_visible(self.actor, dataset_get(self.actor, dataset)), NumberedRowOut)


def read_request(request: Request) -> dict[str, Any]:
    """Name, domain and cleaned rows of a JSON body or of an uploaded file.

    Raises:
        Invalid, TooLarge: as for ``training.data.uploads``.
    """
    data: Any = request.data
    if isinstance(data, QueryDict):
        form = parsed(DatasetFile, data.dict())
        upload = form["file"]
        query = form.get("query_column", "")
        mapping = ColumnMapping(query, form.get("answer_column", "")) if query else None
        rows = read_rows(upload.name, upload.read(), mapping)
        given = {"domain": form.get("domain", ""), "follows": form.get("follows")}
        return given | {
            "name": form.get("name") or ("" if form.get("follows") else upload.name),
            "rows": rows,
            "origin": DatasetOrigin.FILE,
            "origin_detail": upload.name,
        }
    values = parsed(DatasetIn, data)
    return values | {"rows": clean_rows(values["rows"])}
