"""REST: measurements of a release's lessons on another model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.jobs.models import Job
from agentcore_site.jobs.services import job_cancel, job_resume
from agentcore_site.rest.parsing import Strict, parsed
from agentcore_site.rest.rows import ReadViewSet
from evaluation.serving.models import SurvivalRun
from evaluation.serving.releases.selectors import release_get
from evaluation.serving.survival.presenters import SurvivalFilters, SurvivalOut, SurvivalRow
from evaluation.serving.survival.selectors import survival_run_get, survival_runs_visible
from evaluation.serving.survival.services import (
    DEFAULT_BUDGET_USD,
    DEFAULT_PAIRS,
    MOST_BUDGET_USD,
    MOST_PAIRS,
    survival_start,
)
from experiences.agents.selectors import endpoint_get

NEW = OpenApiExample(
    "A smaller model at the same endpoint",
    {"release": "0199f1f3-0c4e-7a51-8d7a-1b2c3d4e5f60", "model": "small", "max_budget_usd": 2.5},
    request_only=True,
)


class SurvivalIn(Strict):
    release = serializers.UUIDField(help_text="The release whose lessons are measured.")
    endpoint = serializers.CharField(
        max_length=120, required=False, help_text="Of the other model, by id or name. Default: the release's."
    )
    model = serializers.CharField(
        max_length=120, required=False, allow_blank=True, help_text="Default: the endpoint's own."
    )
    max_budget_usd = serializers.FloatField(
        min_value=0.0001,
        max_value=MOST_BUDGET_USD,
        default=DEFAULT_BUDGET_USD,
        help_text="The limit: when it is reached, the pairs that are done are reported.",
    )
    pairs = serializers.IntegerField(min_value=1, max_value=MOST_PAIRS, default=DEFAULT_PAIRS)


class SurvivalRunViewSet(ReadViewSet):
    """Survival of lessons: which lessons of a release still help on another model."""

    queryset = SurvivalRun.objects.none()
    tag = "releases"
    serializer_class = SurvivalOut
    list_class = SurvivalRow
    filterset_class = SurvivalFilters
    orderings = {"-created_at": "job__created_at"}
    lookup_value_converter = "uuid"
    versioned, locks = ("status", "status_reason"), Job
    idempotent = ("create",)
    lists = ("List measurements of lessons on other models", survival_runs_visible)
    reads = ("One measurement with its report", survival_run_get)

    @extend_schema(
        summary="Measure the lessons of a release on another model",
        request=SurvivalIn,
        responses={201: SurvivalOut, 200: SurvivalOut},
        examples=[NEW],
        description="Plays pairs of training and selection queries with lessons left out, on the other model, within"
        " the limit. The same request is played and paid for once: a second one is answered 200 with the first"
        " measurement.",
    )
    def create(self, request: Request) -> Response:
        values = parsed(SurvivalIn, request.data)

        def work() -> Response:
            release, named = release_get(self.actor, values.pop("release")), values.pop("endpoint", None)
            endpoint = None if named is None else endpoint_get(self.actor, named)
            made, is_new = survival_start(self.actor, release, endpoint=endpoint, **values)
            found = SurvivalOut(survival_run_get(self.actor, made.pk)).data
            headers = {"Location": f"/api/v1/survival-runs/{made.pk}"}
            return Response(found, status=201 if is_new else 200, headers=headers)

        return self.once(request, work)

    @action(detail=True, methods=["post"], name="Cancel a measurement of lessons")
    def cancel(self, request: Request, pk: UUID) -> Response:
        return self._moved(pk, job_cancel)

    @action(detail=True, methods=["post"], name="Resume a paused measurement of lessons")
    def resume(self, request: Request, pk: UUID) -> Response:
        return self._moved(pk, job_resume)

    def _moved(self, pk: UUID, move: Callable[[Any, Job], Job]) -> Response:
        move(self.actor, survival_run_get(self.actor, pk).job)
        return self.answer(survival_run_get(self.actor, pk))
