"""REST: requests and answers in production."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema, extend_schema_field, extend_schema_serializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.rest.views import ScopedViewSet
from evaluation.serving.api.feedback import FeedbackOut
from evaluation.serving.feedback.selectors import feedback_visible
from evaluation.serving.models import ProductionTrace
from evaluation.serving.traces.filters import ProductionTraceFilters
from evaluation.serving.traces.presenters import ProductionTraceRow
from evaluation.serving.traces.selectors import production_trace_get, production_traces_visible


@extend_schema_serializer(deprecate_fields=["told"])
class ProductionTraceDetail(ProductionTraceRow):
    key = serializers.CharField(help_text="First characters of the consumer's key.")
    endpoint = serializers.CharField()
    attempts = serializers.IntegerField(help_text="Calls of the model that it took.")
    temperature = serializers.FloatField(allow_null=True)
    metadata = serializers.JSONField(help_text="Metadata of the task from the caller, by name.")
    context_handles = serializers.ListField(
        child=serializers.CharField(), source="told", help_text="Handles of lessons and items in its context."
    )
    told = serializers.ListField(child=serializers.CharField(), help_text="The former name of `context_handles`.")
    request = serializers.JSONField(help_text="As it was asked, without personal data.")
    response = serializers.JSONField(help_text="As it was answered, without personal data.")
    sampled = serializers.CharField(
        help_text="Ids and log-probabilities of its tokens, packed as in steps; empty: none."
    )
    components = serializers.JSONField(help_text="What the reward is made of: raw, as z-scores, and weighed.")
    feedback = serializers.SerializerMethodField()

    @extend_schema_field(FeedbackOut(many=True))
    def get_feedback(self, row: ProductionTrace) -> list[Any]:
        return list(FeedbackOut(feedback_visible(self.context["actor"]).filter(trace=row), many=True).data)


class ProductionTraceViewSet(ScopedViewSet):
    """Calls through the gateway: request, answer, release and cost."""

    queryset = ProductionTrace.objects.none()
    tag = "traces"
    serializer_class = ProductionTraceDetail
    filterset_class = ProductionTraceFilters
    lookup_value_converter = "uuid"
    orderings = {"-created_at": "created_at", "-cost": "cost_micros", "-duration": "duration_ms"}

    @extend_schema(summary="List production traces", responses=ProductionTraceRow(many=True))
    def list(self, request: Request) -> Response:
        heavy = ("request", "response", "components", "metadata", "told", "sampled")
        return self.page(production_traces_visible(self.actor).defer(*heavy), ProductionTraceRow)

    @extend_schema(summary="One production trace")
    def retrieve(self, request: Request, pk: UUID) -> Response:
        row = production_trace_get(self.actor, pk)
        return self.answer(row)
