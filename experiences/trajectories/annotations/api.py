"""REST: annotations of trajectories."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django_filters import rest_framework as filters
from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.jobs.selectors import job_get
from agentcore_site.rest.parsing import Strict, parsed
from agentcore_site.rest.rows import ReadViewSet
from experiences.lessons.filters import OfAgent
from experiences.models import Annotation
from experiences.trajectories.annotations.selectors import annotation_get, annotations_visible
from experiences.trajectories.annotations.services import (
    LARGEST_SCORE,
    LONGEST_LABEL,
    LONGEST_TEXT,
    annotation_create,
    annotation_delete,
    annotation_update,
)
from experiences.trajectories.archive.reading import trajectory_rows
from experiences.trajectories.step_window import trajectory_light


class AnnotationOut(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    trajectory_id = serializers.UUIDField()
    job_id = serializers.UUIDField()
    agent_id = serializers.UUIDField()
    step = serializers.IntegerField(allow_null=True, help_text="From 1; null is the whole trajectory.")
    label = serializers.CharField()  # type: ignore[assignment]
    score = serializers.FloatField(allow_null=True)
    comment = serializers.CharField(help_text="Without personal data.")
    answer = serializers.CharField(help_text="What would have been right.")
    by = serializers.CharField(help_text="The author's name; empty once the account is gone.")
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


class AnnotationPatch(Strict):
    label = serializers.CharField(max_length=LONGEST_LABEL, required=False, allow_blank=True)  # type: ignore[assignment]
    score = serializers.FloatField(required=False, allow_null=True, min_value=-LARGEST_SCORE, max_value=LARGEST_SCORE)
    comment = serializers.CharField(max_length=LONGEST_TEXT, required=False, allow_blank=True)
    answer = serializers.CharField(
        max_length=LONGEST_TEXT, required=False, allow_blank=True, help_text="What would have been right."
    )


class AnnotationIn(AnnotationPatch):
    trajectory = serializers.UUIDField()
    step = serializers.IntegerField(
        required=False, allow_null=True, min_value=1, help_text="From 1; none is the whole trajectory."
    )


class AnnotationFilters(OfAgent):
    trajectory = filters.UUIDFilter(field_name="trajectory_id")
    job = filters.UUIDFilter(method="of_job")
    label = filters.CharFilter(field_name="label")
    min_score = filters.NumberFilter(field_name="score", lookup_expr="gte")
    max_score = filters.NumberFilter(field_name="score", lookup_expr="lte")
    search = filters.CharFilter(field_name="comment", lookup_expr="icontains", help_text="Text in the comment.")

    class Meta:
        model = Annotation
        fields: list[str] = []

    def of_job(self, rows: Any, name: str, value: Any) -> Any:
        return rows.filter(job_id=job_get(self.actor, value).id)


EXAMPLE = OpenApiExample(
    "On a step",
    {
        "trajectory": "0199f1f3-0c4e-7a51-8d7a-1b2c3d4e5f60",
        "step": 3,
        "label": "wrong tool",
        "comment": "The calendar would have known.",
    },
    request_only=True,
)


class AnnotationViewSet(ReadViewSet):
    """Annotations of trajectories and of their steps."""

    queryset = Annotation.objects.none()
    tag = "annotations"
    serializer_class = AnnotationOut
    filterset_class = AnnotationFilters
    lookup_value_converter = "uuid"
    orderings = {"-created_at": "created_at", "-updated_at": "updated_at"}
    versioned = ("label", "score", "comment", "answer", "updated_at")
    lists = ("List annotations", annotations_visible)
    reads = ("One annotation", annotation_get)

    @extend_schema(summary="Annotate a trajectory", request=AnnotationIn, examples=[EXAMPLE])
    def create(self, request: Request) -> Response:
        """A comment, a label, a score or the correct answer, on the whole or on one step."""
        values = parsed(AnnotationIn, request.data)

        def work() -> Response:
            trajectory_id = values.pop("trajectory")
            with trajectory_rows(self.actor, trajectory_id):
                row = trajectory_light(self.actor, trajectory_id)
            return self.answer(annotation_create(self.actor, row, **values), status=201)

        return self.once(request, work)

    @extend_schema(summary="Change an annotation", request=AnnotationPatch)
    def partial_update(self, request: Request, pk: UUID) -> Response:
        """One's own alone."""
        values = parsed(AnnotationPatch, request.data)
        return self.answer(annotation_update(self.actor, annotation_get(self.actor, pk), **values))

    @extend_schema(summary="Delete an annotation")
    def destroy(self, request: Request, pk: UUID) -> Response:
        """One's own alone."""
        annotation_delete(self.actor, annotation_get(self.actor, pk))
        return Response(status=204)
