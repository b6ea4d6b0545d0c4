"""REST: suites with their versions, their runs, and the results of a release."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import StreamingHttpResponse
from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.audit.services import record
from agentcore_site.jobs.models import Job
from agentcore_site.jobs.services import job_cancel, job_resume
from agentcore_site.lib.errors import Invalid
from agentcore_site.lib.money import dollars
from agentcore_site.rest.parsing import Strict, parsed
from agentcore_site.rest.row_files import FORMAT, RESPONSES, RowFile, row_file
from agentcore_site.rest.shapes import Shape
from agentcore_site.rest.views import ScopedViewSet
from evaluation.serving.models import Suite, SuiteResult, SuiteRun
from evaluation.serving.releases.selectors import release_get
from evaluation.serving.suites.filters import SuiteFilters, SuiteResultFilters, SuiteRunFilters
from evaluation.serving.suites.presenters import SuiteOut, SuiteRunOut
from evaluation.serving.suites.selectors import (
    results_visible,
    suite_get,
    suite_run_get,
    suite_runs_visible,
    suites_visible,
    trajectories_of,
    version_get,
)
from evaluation.serving.suites.services import (
    DEFAULT_BUDGET_USD,
    MOST_BUDGET_USD,
    suite_archive,
    suite_built_in_add,
    suite_create,
    suite_run_start,
    suite_version_add,
)
from experiences.models.agent_lookup import agent_get


class SuiteVersionOut(serializers.Serializer[Any]):
    number = serializers.IntegerField(help_text="Counted by suite, from 1.")
    digest = serializers.CharField(help_text="SHA-256 of what is asked and how.")
    spec = serializers.JSONField(help_text="What is asked, and how.")
    created_at = serializers.DateTimeField()


class SuiteDetail(SuiteOut):
    versions = SuiteVersionOut(many=True, source="versions.all", help_text="The newest first.")


class SuiteIn(Strict):
    built_in = serializers.CharField(
        max_length=60, required=False, help_text="A suite of the program, by name, or its next version. Alone."
    )
    name = serializers.SlugField(max_length=60, required=False)
    description = serializers.CharField(max_length=500, required=False, allow_blank=True)
    spec = serializers.DictField(required=False, help_text="Its parts, and the settings of their rollouts.")


class SuiteVersionIn(Strict):
    spec = serializers.DictField(help_text="Its parts, and the settings of their rollouts.")


class SuiteRunDetail(SuiteRunOut):
    report = serializers.DictField(help_text="The verdict, and figures by category. Empty until it is done.")


class SuiteRunIn(Strict):
    suite = serializers.CharField(max_length=60, help_text="By id or name.")
    version = serializers.IntegerField(
        required=False, min_value=1, max_value=2**31 - 1, help_text="Default: the newest."
    )
    agent = serializers.CharField(max_length=60, required=False, help_text="As it is now; by id or slug.")
    release = serializers.UUIDField(required=False, help_text="This or agent.")
    judge_model = serializers.CharField(max_length=120, required=False, allow_blank=True)
    max_budget_usd = serializers.FloatField(min_value=0.0001, max_value=MOST_BUDGET_USD, default=DEFAULT_BUDGET_USD)


class SuiteResultOut(Shape):
    part = serializers.IntegerField()
    scenario = serializers.IntegerField()
    category = serializers.CharField()
    query = serializers.CharField()
    answer = serializers.CharField(help_text="Of the first sample that failed, else of the first.")
    why = serializers.CharField(help_text="Reason of the judgement.")
    successes = serializers.ListField(
        child=serializers.BooleanField(allow_null=True), help_text="By sample; null: it could not be judged."
    )
    cost_usd = serializers.FloatField()
    tokens = serializers.IntegerField()
    trajectories = serializers.SerializerMethodField()

    computed = {"cost_usd": lambda row: dollars(row.cost_micros)}

    def get_trajectories(self, row: SuiteResult) -> list[UUID]:
        found: dict[int, list[UUID]] = self.context["behind"]
        return found.get(row.pk, [])


NEW = OpenApiExample("One of the program's", {"built_in": "safety"}, request_only=True)
RUN = OpenApiExample(
    "The current configuration of an agent", {"suite": "safety", "agent": "support"}, request_only=True
)


class SuiteViewSet(ScopedViewSet):
    """Named suites: the same queries for each agent and release. Versions never change."""

    queryset = Suite.objects.none()
    tag = "suites"
    serializer_class = SuiteOut
    filterset_class = SuiteFilters
    orderings = {"name": "name", "-created_at": "created_at"}
    lookup_value_converter = "uuid"
    versioned = ("version", "archived_at")
    idempotent = ("create", "versions")

    @extend_schema(summary="List suites")
    def list(self, request: Request) -> Response:
        return self.page(suites_visible(self.actor), SuiteOut)

    @extend_schema(summary="Make a suite", request=SuiteIn, examples=[NEW])
    def create(self, request: Request) -> Response:
        """With its first version; or add one of the program's, or its next version."""
        values = parsed(SuiteIn, request.data)

        def work() -> Response:
            if values.keys() == {"built_in"}:
                made = suite_built_in_add(self.actor, name=values["built_in"])
            elif "name" in values and "spec" in values and "built_in" not in values:
                made = suite_create(self.actor, **values)
            else:
                message = "Give built_in alone, or a name with a spec."
                raise Invalid(message, fields={"name": message})
            return self.answer(suite_get(self.actor, made.pk), status=201)

        return self.once(request, work)

    @extend_schema(summary="One suite with its versions", responses=SuiteDetail)
    def retrieve(self, request: Request, pk: UUID) -> Response:
        return Response(SuiteDetail(suite_get(self.actor, pk)).data)

    @extend_schema(summary="Archive a suite")
    def destroy(self, request: Request, pk: UUID) -> Response:
        suite_archive(self.actor, suite_get(self.actor, pk))
        return Response(status=204)

    @extend_schema(summary="Make the next version", request=SuiteVersionIn, responses={201: SuiteVersionOut})
    @action(detail=True, methods=["post"], pagination_class=None)
    def versions(self, request: Request, pk: UUID) -> Response:
        values = parsed(SuiteVersionIn, request.data)

        def work() -> Response:
            made = suite_version_add(self.actor, suite_get(self.actor, pk), **values)
            return Response(SuiteVersionOut(made).data, status=201)

        return self.once(request, work)


class SuiteRunViewSet(ScopedViewSet):
    """Runs of suites, on a release or on an agent's state at that time."""

    queryset = SuiteRun.objects.none()
    tag = "suites"
    serializer_class = SuiteRunOut
    filterset_class = SuiteRunFilters
    orderings = {"-created_at": "job__created_at"}
    lookup_value_converter = "uuid"
    versioned, locks = ("status", "status_reason"), Job

    @extend_schema(summary="List runs of suites")
    def list(self, request: Request) -> Response:
        return self.page(suite_runs_visible(self.actor), SuiteRunOut)

    @extend_schema(summary="Run a suite", request=SuiteRunIn, examples=[RUN])
    def create(self, request: Request) -> Response:
        """On a release, or on an agent as it is now. The run has a budget of its own."""
        values = parsed(SuiteRunIn, request.data)

        def work() -> Response:
            version = version_get(suite_get(self.actor, values.pop("suite")), values.pop("version", None))
            agent, release = values.pop("agent", None), values.pop("release", None)
            made = suite_run_start(
                self.actor,
                version,
                agent=None if agent is None else agent_get(self.actor, agent),
                release=None if release is None else release_get(self.actor, release),
                **values,
            )
            found = SuiteRunOut(suite_run_get(self.actor, made.pk)).data
            return Response(found, status=201, headers={"Location": f"/api/v1/suite-runs/{made.pk}"})

        return self.once(request, work)

    @extend_schema(summary="One run with its report", responses=SuiteRunDetail)
    def retrieve(self, request: Request, pk: UUID) -> Response:
        return Response(SuiteRunDetail(suite_run_get(self.actor, pk)).data)

    @action(detail=True, methods=["post"], name="Cancel a run")
    def cancel(self, request: Request, pk: UUID) -> Response:
        job_cancel(self.actor, suite_run_get(self.actor, pk).job)
        return self.answer(suite_run_get(self.actor, pk))

    @action(detail=True, methods=["post"], name="Resume a paused run")
    def resume(self, request: Request, pk: UUID) -> Response:
        job_resume(self.actor, suite_run_get(self.actor, pk).job)
        return self.answer(suite_run_get(self.actor, pk))


class SuiteResultViewSet(ScopedViewSet):
    """Every query of a run, with the answer and its trajectories."""

    queryset = SuiteResult.objects.none()
    tag = "suites"
    serializer_class = SuiteResultOut
    filterset_class = SuiteResultFilters
    orderings = {"id": "id"}
    known_query = {"export": ("format", *SuiteResultFilters.base_filters)}

    @extend_schema(summary="Results of a run, query by query")
    def list(self, request: Request, run: UUID) -> Response:
        found = suite_run_get(self.actor, run)
        rows = list(self.paginate_queryset(self.filter_queryset(results_visible(self.actor, found))) or ())
        shown = SuiteResultOut(rows, many=True, context={"behind": trajectories_of(rows, found)})
        return self.get_paginated_response(shown.data)

    @extend_schema(
        operation_id="suite_run_results_export",
        summary="Results of a run as a file",
        parameters=[FORMAT],
        responses=RESPONSES,
        filters=True,
    )
    def export(self, request: Request, run: UUID) -> StreamingHttpResponse:
        """All of them, or those that pass the list's filters. Each export is logged."""
        found = suite_run_get(self.actor, run)
        file = RowFile(
            f"{found.version.suite.name}-{found.pk}",
            self.filter_queryset(results_visible(self.actor, found)),
            SuiteResultOut,
            context=lambda rows: {"behind": trajectories_of(list(rows), found)},
        )
        answer = row_file(request, file)
        record(self.actor, "suite_run.exported", found, after={"asked": request.query_params.dict()})
        return answer
