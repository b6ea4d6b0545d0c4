"""REST: evaluations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django_filters import rest_framework as filters
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_serializer
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.jobs.models import Job, Status
from agentcore_site.jobs.services import job_cancel, job_resume
from agentcore_site.lib.errors import Invalid
from agentcore_site.rest.parsing import Strict, parsed
from agentcore_site.rest.rows import ReadViewSet
from evaluation.candidates import MOST_TEXTS, candidate_try
from evaluation.graded import evaluated_digest
from evaluation.models import Against, EvaluationRun, Split
from evaluation.presenters.shapes import AGAINST, EvaluationRow
from evaluation.selectors import changed_queries, evaluation_get, evaluations_visible
from evaluation.services import MAX_SAMPLES, evaluation_start
from experiences.learning.lessons.states import LONGEST
from experiences.lessons.filters import OfAgent
from training.grading.selectors import errors_of
from training.presenters.grader_errors import GraderErrorsOut
from training.selectors.runs import run_get
from training.services.checkpoints import checkpoint_of, job_with_queries


@extend_schema_serializer(deprecate_fields=["evaluation_id"])
class EvaluationOut(EvaluationRow):
    lines = serializers.ListField(child=serializers.CharField(), help_text="The test sets; the first one decides.")
    temperature = serializers.FloatField()
    seed = serializers.IntegerField()
    error = serializers.CharField(source="job.error", allow_blank=True)
    grader_errors = GraderErrorsOut(many=True, help_text="Of each scorer that people judged on this data.")
    report = serializers.DictField(
        help_text="By test set and metric: both arms, intervals, p-values. Empty until the evaluation is done."
    )

    computed = {**EvaluationRow.computed, "grader_errors": lambda one: errors_of(one.run, evaluated_digest(one))}


class EvaluationIn(Strict):
    training_job_id = serializers.UUIDField(
        required=False,
        help_text="This or checkpoint_id: the job with the queries. Default for an uploaded one: its agent's newest.",
    )
    checkpoint_id = serializers.UUIDField(required=False, allow_null=True, help_text="Default: the job's best.")
    split = serializers.ChoiceField(choices=Split.choices, default=Split.HELD_OUT)
    queries = serializers.ListField(
        required=False,
        max_length=10_000,
        child=serializers.JSONField(),
        help_text='Texts from the job\'s own pools, or rows {"query", "expected_outcome"}.',
    )
    samples = serializers.IntegerField(required=False, min_value=1, max_value=MAX_SAMPLES)
    against = serializers.ChoiceField(choices=Against.choices, default=Against.BEGAN, help_text=AGAINST)


class CandidateIn(Strict):
    training_job_id = serializers.UUIDField(help_text="The job whose selection queries judge, and whose budget pays.")
    lessons = serializers.ListField(
        child=serializers.CharField(max_length=LONGEST["summary"]),
        min_length=1,
        max_length=MOST_TEXTS,
        help_text="The whole context of the candidate, a text each.",
    )
    samples = serializers.IntegerField(required=False, min_value=1, max_value=MAX_SAMPLES)


class QueriesQuery(Strict):
    line = serializers.CharField(max_length=30, required=False, help_text="Default: the first test set.")
    only_changed = serializers.BooleanField(default=True)


class ChangedQuery(serializers.Serializer[Any]):
    scenario = serializers.IntegerField()
    query = serializers.CharField()
    baseline = serializers.FloatField(help_text="Success rate of the baseline arm.")
    trained = serializers.FloatField()
    difference = serializers.FloatField()
    baseline_trajectories = serializers.ListField(child=serializers.UUIDField())
    trained_trajectories = serializers.ListField(child=serializers.UUIDField())


class QueriesOut(serializers.Serializer[Any]):
    line = serializers.CharField()
    queries = ChangedQuery(many=True, help_text="The largest changes first.")


class EvaluationFilters(OfAgent):
    training_job = filters.UUIDFilter(field_name="run_id")
    checkpoint = filters.UUIDFilter(field_name="checkpoint_id")
    status = filters.MultipleChoiceFilter(field_name="job__status", choices=Status.choices, help_text="Repeatable.")

    class Meta:
        model = EvaluationRun
        fields: list[str] = []


NEW = OpenApiExample(
    "A job's best checkpoint on its held-out queries",
    {"training_job_id": "0199f1f3-0c4e-7a51-8d7a-1b2c3d4e5f60", "samples": 8},
    request_only=True,
)


class EvaluationViewSet(ReadViewSet):
    queryset = EvaluationRun.objects.none()
    tag = "evaluations"
    serializer_class = EvaluationOut
    filterset_class = EvaluationFilters
    lookup_value_converter = "uuid"
    orderings = {"-created_at": "job__created_at"}
    known_query = {"queries": ("line", "only_changed")}
    versioned, locks = ("status",), Job
    list_class = EvaluationRow
    idempotent = ("create", "candidates")
    lists = ("List evaluations", evaluations_visible)
    reads = ("One evaluation with its report", evaluation_get)

    @extend_schema(
        summary="Evaluate a checkpoint against the context that its run began with, or against no context",
        request=EvaluationIn,
        examples=[NEW],
    )
    def create(self, request: Request) -> Response:
        values = parsed(EvaluationIn, request.data)
        return self.once(request, lambda: self._started(values))

    @extend_schema(
        summary="Try a candidate context on the selection queries of a job",
        request=CandidateIn,
        responses={201: EvaluationOut, 200: EvaluationOut},
        description="Plays the texts against the context that the job began with. The same texts are played and paid"
        " for once: a second request is answered 200 with the first evaluation. `report.tries` numbers the tries on"
        " these queries, and the verdict's p-value is corrected for them.",
    )
    @action(detail=False, methods=["post"], pagination_class=None)
    def candidates(self, request: Request) -> Response:
        values = parsed(CandidateIn, request.data)
        run = run_get(self.actor, values.pop("training_job_id"))
        return self.once(request, lambda: self._made(*candidate_try(self.actor, run, **values)))

    @extend_schema(
        summary="Queries that changed, with the trajectories of both arms",
        parameters=[QueriesQuery],
        responses=QueriesOut,
    )
    @action(detail=True, pagination_class=None)
    def queries(self, request: Request, pk: UUID) -> Response:
        asked = parsed(QueriesQuery, request.query_params.dict())
        evaluation = evaluation_get(self.actor, pk)
        line = asked.get("line") or evaluation.lines[0]
        if line not in evaluation.lines:
            message = f"This evaluation has no test set {line!r}. Test sets: {', '.join(evaluation.lines)}."
            raise Invalid(message, fields={"line": message})
        return Response(
            {"line": line, "queries": changed_queries(evaluation, line, only_changed=asked["only_changed"])}
        )

    @action(detail=True, methods=["post"], name="Cancel an evaluation")
    def cancel(self, request: Request, pk: UUID) -> Response:
        return self._moved(pk, job_cancel)

    @action(detail=True, methods=["post"], name="Resume a paused or failed evaluation")
    def resume(self, request: Request, pk: UUID) -> Response:
        return self._moved(pk, job_resume)

    def _moved(self, pk: UUID, move: Callable[[Any, Job], Job]) -> Response:
        move(self.actor, evaluation_get(self.actor, pk).job)
        return self.answer(evaluation_get(self.actor, pk))

    def _started(self, values: dict[str, Any]) -> Response:
        checkpoint_id, job_id = values.pop("checkpoint_id", None), values.pop("training_job_id", None)
        checkpoint = checkpoint_of(self.actor, checkpoint_id) if checkpoint_id else None
        if checkpoint is None and job_id is None:
            message = "Give training_job_id or checkpoint_id."
            raise Invalid(message, fields={"training_job_id": message})
        run = run_get(self.actor, job_id or (job_with_queries(checkpoint) if checkpoint else None))
        return self._made(evaluation_start(self.actor, run=run, checkpoint=checkpoint, **values))

    def _made(self, made: EvaluationRun, is_new: bool = True) -> Response:
        found = EvaluationOut(evaluation_get(self.actor, made.job_id)).data
        headers = {"Location": f"/api/v1/evaluations/{made.job_id}"}
        return Response(found, status=201 if is_new else 200, headers=headers)
