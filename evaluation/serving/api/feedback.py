"""REST: feedback on answers in production."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.rest.parsing import Strict, parsed
from agentcore_site.rest.rows import ReadViewSet
from evaluation.serving.feedback.opinions import MOST_TEXT
from evaluation.serving.feedback.selectors import feedback_get, feedback_visible, trace_of
from evaluation.serving.feedback.services import feedback_give, feedback_withdraw
from evaluation.serving.models import Feedback, FeedbackSource
from evaluation.serving.traces.filters import FeedbackFilters


class FeedbackOut(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    trace_id = serializers.UUIDField()
    metric = serializers.CharField()
    value = serializers.FloatField(
        allow_null=True, help_text="Thumbs: 1 up, 0 down. Null for a text alone, or if a rule gave it."
    )
    text = serializers.CharField(help_text="Without personal data.")
    source = serializers.ChoiceField(choices=FeedbackSource.choices)  # type: ignore[assignment]
    by = serializers.CharField(source="giver", help_text="A person or a key by their id, or the rule.")
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


@extend_schema_field(OpenApiTypes.ANY)
class AnyValue(serializers.JSONField):
    pass


class FeedbackIn(Strict):
    trace = serializers.UUIDField(help_text="The `x-agentcore-trace-id` of the answer.")
    metric = serializers.CharField(
        max_length=40,
        help_text="thumbs, stars, correction, comment, success (was the task done, 0 to 1), or a name of yours.",
    )
    value = AnyValue(
        required=False,
        allow_null=True,
        help_text="Thumbs: up or down. Stars: 1 to 5. Yours: a number or true, false. None with a text alone.",
    )
    text = serializers.CharField(
        max_length=MOST_TEXT, required=False, allow_blank=True, help_text="The better answer, or why. It is redacted."
    )


EXAMPLES = [
    OpenApiExample("Thumbs", {"trace": "0199f1f3-0c4e-7a51-8d7a-1b2c3d4e5f60", "metric": "thumbs", "value": "up"}),
    OpenApiExample(
        "A correction",
        {"trace": "0199f1f3-0c4e-7a51-8d7a-1b2c3d4e5f60", "metric": "correction", "text": "It closes at 18:00."},
    ),
]


class FeedbackViewSet(ReadViewSet):
    """Feedback of people, programs and rules on answers in production."""

    queryset = Feedback.objects.none()
    tag = "feedback"
    serializer_class = FeedbackOut
    filterset_class = FeedbackFilters
    lookup_value_converter = "uuid"
    orderings = {"-created_at": "created_at", "-updated_at": "updated_at"}
    versioned = ("value", "text", "updated_at")
    blind = ("create",)
    lists = ("List feedback", feedback_visible)
    reads = ("One feedback", feedback_get)

    @extend_schema(
        summary="Give feedback",
        description="One metric of one answer. What the same person or key gave before by this metric is replaced (200"
        " then, 201 where it is new). A key needs the scope `feedback:write`, and no other.",
        request=FeedbackIn,
        responses={200: FeedbackOut, 201: FeedbackOut},
        examples=EXAMPLES,
    )
    def create(self, request: Request) -> Response:
        values = parsed(FeedbackIn, request.data)

        def work() -> Response:
            trace = trace_of(self.actor, values.pop("trace"))
            row, new = feedback_give(self.actor, trace, **values)
            return self.answer(row, status=201 if new else 200)

        return self.once(request, work)

    @extend_schema(summary="Take feedback back")
    def destroy(self, request: Request, pk: UUID) -> Response:
        """One's own alone."""
        feedback_withdraw(self.actor, feedback_get(self.actor, pk))
        return Response(status=204)
