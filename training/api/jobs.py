"""REST: training jobs. The same services as every other interface, so the same messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar
from uuid import UUID

from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore_site.jobs.models import Job
from agentcore_site.jobs.services import job_cancel, job_pause, job_resume
from agentcore_site.lib.links import placed
from agentcore_site.rest.parsing import parsed
from agentcore_site.rest.views import ScopedViewSet
from agentcore_site.tenancy.permissions import require
from experiences.agents.selectors import dataset_get
from experiences.models.agent_lookup import agent_get
from training.api.epochs import EpochOut, ManifestOut, PerEpochOut
from training.api.job_shapes import (
    MAX_GROUP_ITERATIONS,
    START,
    WITH_DATA,
    CommentIn,
    CommentOut,
    DescriptionIn,
    EstimateIn,
    FailuresOut,
    GoOnIn,
    GoOnQuery,
    GroupRowOut,
    GroupsOut,
    GroupsQuery,
    JobFilters,
    JobIn,
    OutlookOut,
    SeriesOut,
    SeriesQuery,
)
from training.exports.artefacts import model_card, training_curves
from training.exports.manifests import run_manifest
from training.exports.metric_files import MetricFile, metric_lines, per_epoch
from training.models import TrainingRun
from training.presenters.failures import failures_of
from training.presenters.shapes import PRIORITIES, FullEstimateOut, JobOut, JobRow
from training.selectors import going_on
from training.selectors.notes import comments_of
from training.selectors.run_lessons import run_epochs
from training.selectors.runs import group_grid, run_get, run_series, runs_visible
from training.services.going_on import run_go_on
from training.services.notes import (
    comment_add,
    comment_edit,
    comment_remove,
    job_describe,
    job_pin,
    job_unpin,
)
from training.services.runs import run_estimate, run_start

Answer = TypeVar("Answer", bound=HttpResponseBase)


class TrainingJobViewSet(ScopedViewSet):
    queryset = TrainingRun.objects.none()
    tag = "training jobs"
    serializer_class = JobOut
    filterset_class = JobFilters
    lookup_value_converter = "uuid"
    orderings = {
        "-created_at": "job__created_at",
        "cost": "cost_micros",
        "iteration": "iteration",
        "status": "job__status",
        "agent": "agent__slug",
    }
    known_query = {"series": ("after",), "groups": ("first", "last"), "go_on": ("amount_usd",)}
    versioned, locks = ("status", "status_reason", "requested", "note", "tags"), Job
    idempotent = ("create", "comments", "go_on")

    @extend_schema(summary="List training jobs", responses=JobRow(many=True))
    def list(self, request: Request) -> Response:
        return self.page(runs_visible(self.actor), JobRow)

    @extend_schema(summary="Start a training job", request=JobIn, examples=[START, WITH_DATA])
    def create(self, request: Request) -> Response:
        """Data are a dataset, queries with the request, or the agent's environment."""
        values = parsed(JobIn, request.data)
        return self.once(request, lambda: self._started(values))

    @extend_schema(
        summary="Estimate of a job: its cost, its time, and the gains that it can detect",
        request=EstimateIn,
        responses=FullEstimateOut,
    )
    @action(detail=False, methods=["post"], pagination_class=None, filter_backends=[])
    def estimate(self, request: Request) -> Response:
        values = parsed(EstimateIn, request.data)
        agent, dataset = self._sources(values)
        return Response(run_estimate(self.actor, agent=agent, dataset=dataset, **values))

    @extend_schema(summary="One training job")
    def retrieve(self, request: Request, pk: UUID) -> Response:
        return self._job(pk)

    @extend_schema(summary="Set a job's note and tags", description="What is not given stays.", request=DescriptionIn)
    def partial_update(self, request: Request, pk: UUID) -> Response:
        values = parsed(DescriptionIn, request.data)
        job_describe(self.actor, run_get(self.actor, pk), **values)
        return self._job(pk)

    @extend_schema(methods=["GET"], summary="Comments on a job", responses=CommentOut(many=True))
    @extend_schema(methods=["POST"], summary="Comment on a job", request=CommentIn, responses={201: CommentOut})
    @action(detail=True, methods=["get", "post"], pagination_class=None, filter_backends=[])
    def comments(self, request: Request, pk: UUID) -> Response:
        run = run_get(self.actor, pk)
        if request.method == "POST":
            values = parsed(CommentIn, request.data)
            return self.once(request, lambda: Response(CommentOut(comment_add(self.actor, run, **values)).data, 201))
        # GET, and HEAD, which is sent here too.
        return Response(CommentOut(comments_of(self.actor, run), many=True).data)

    @extend_schema(
        methods=["PATCH"],
        operation_id="training_jobs_comment_partial_update",
        summary="Edit your comment",
        request=CommentIn,
        responses=CommentOut,
    )
    @extend_schema(methods=["DELETE"], operation_id="training_jobs_comment_destroy", summary="Remove your comment")
    @action(detail=True, methods=["patch", "delete"], url_path="comments/<uuid:comment>", pagination_class=None)
    def comment(self, request: Request, pk: UUID, comment: UUID) -> Response:
        run = run_get(self.actor, pk)
        if request.method == "PATCH":
            values = parsed(CommentIn, request.data)
            return Response(CommentOut(comment_edit(self.actor, run, comment, **values)).data)
        comment_remove(self.actor, run, comment)
        return Response(status=204)

    @action(detail=True, methods=["post"], name="Pause a job")
    def pause(self, request: Request, pk: UUID) -> Response:
        return self._moved(pk, job_pause)

    @action(detail=True, methods=["post"], name="Resume a paused or failed job")
    def resume(self, request: Request, pk: UUID) -> Response:
        return self._moved(pk, job_resume)

    @action(detail=True, methods=["post"], name="Cancel a job")
    def cancel(self, request: Request, pk: UUID) -> Response:
        """A job that a worker holds ends within one rollout's step; until then `requested` says cancel."""
        return self._moved(pk, job_cancel)

    @extend_schema(
        methods=["GET"],
        operation_id="training_jobs_go_on_retrieve",
        summary="What more money lets expect of a finished job",
        parameters=[GoOnQuery],
        responses=OutlookOut,
    )
    @extend_schema(
        methods=["POST"],
        summary="Go on with a finished job",
        description="Starts a job of the same agent, data and settings that begins with the lessons, estimates and "
        "rollouts of this one; it has as many iterations as the amount is expected to pay for.",
        request=GoOnIn,
        responses={201: JobOut},
    )
    @action(detail=True, methods=["get", "post"], url_path="go-on", pagination_class=None, filter_backends=[])
    def go_on(self, request: Request, pk: UUID) -> Response:
        run = run_get(self.actor, pk)
        if request.method == "POST":
            values = parsed(GoOnIn, request.data)
            return self.once(request, lambda: self._job(run_go_on(self.actor, run, **values).job_id, status=201))
        asked = parsed(GoOnQuery, request.query_params.dict())
        seen = going_on.outlook(run, float(asked.get("amount_usd", going_on.usual_amount_usd(run))))
        reason = going_on.fault(run)
        gain = None if seen.gain is None else seen.gain._asdict()
        return Response({**asdict(seen), "gain": gain, "reason": reason, "can_go_on": not reason})

    @extend_schema(summary="The curves of a job", parameters=[SeriesQuery], responses=SeriesOut)
    @action(detail=True, pagination_class=None)
    def series(self, request: Request, pk: UUID) -> Response:
        asked = parsed(SeriesQuery, request.query_params.dict())
        return Response(run_series(run_get(self.actor, pk), asked["after"]))

    @extend_schema(
        summary="Groups of rollouts, by query and iteration",
        description=f"At most {MAX_GROUP_ITERATIONS} iterations at once; by default the last ten.",
        parameters=[GroupsQuery],
        responses=GroupsOut,
    )
    @action(detail=True, pagination_class=None)
    def groups(self, request: Request, pk: UUID) -> Response:
        asked = parsed(GroupsQuery, request.query_params.dict())
        run = run_get(self.actor, pk)
        require(self.actor, "data.view", run.organization_id)
        last = asked.get("last", run.iteration)
        first = max(asked.get("first", last - 9), last - MAX_GROUP_ITERATIONS + 1, 0)
        rows = group_grid(run, first=first, last=last)
        return Response({"first": first, "last": last, "queries": GroupRowOut(rows, many=True).data})

    @extend_schema(summary="Why rollouts of a job failed", responses=FailuresOut)
    @action(detail=True, pagination_class=None)
    def failures(self, request: Request, pk: UUID) -> Response:
        """Failures by reason: how many, since when, and whether they become rarer. Archived rollouts count."""
        groups, total = failures_of(self.actor, run_get(self.actor, pk))
        body = {"total": total, "failed": sum(group.n for group in groups), "reasons": groups}
        return Response(FailuresOut(body).data)

    @extend_schema(
        methods=["POST"], summary="Pin a job", description="It comes first in your own list.", responses={204: None}
    )
    @extend_schema(methods=["DELETE"], summary="Take a pin off a job")
    @action(detail=True, methods=["post", "delete"], pagination_class=None, filter_backends=[])
    def pin(self, request: Request, pk: UUID) -> Response:
        (job_pin if request.method == "POST" else job_unpin)(self.actor, run_get(self.actor, pk))
        return Response(status=204)

    @extend_schema(
        summary="Epochs of a job that learns a context",
        description="Means, tools, questions of reflection, what became of every proposal, and the gate. Empty for "
        "jobs of agents that choose actions.",
        responses=EpochOut(many=True),
    )
    @action(detail=True, pagination_class=None)
    def epochs(self, request: Request, pk: UUID) -> Response:
        return Response(EpochOut(run_epochs(run_get(self.actor, pk)), many=True).data)

    @extend_schema(
        summary="The manifest of a job that learns a context",
        description="Run, agent, data, epochs, lessons, scores, gates and the evidence of its guard-rails; see "
        "docs/learning-without-weights.md.",
        responses=ManifestOut,
    )
    @action(detail=True, pagination_class=None)
    def manifest(self, request: Request, pk: UUID) -> Response:
        return Response(run_manifest(run_get(self.actor, pk)))

    @extend_schema(
        operation_id="training_jobs_metrics_retrieve",
        summary="The figures of a job as a stream, metrics.jsonl",
        description="A line for each iteration, in order, and after the last of each epoch one with its means and"
        " tools. A job that broke off has all lines until then.",
        responses={(200, "application/x-ndjson"): OpenApiResponse(OpenApiTypes.STR, "One JSON object a line.")},
    )
    @action(detail=True, pagination_class=None, url_path="metrics.jsonl", url_name="metrics")
    def metrics_file(self, request: Request, pk: UUID) -> StreamingHttpResponse:
        lines = metric_lines(MetricFile.of(run_get(self.actor, pk)))
        return _file(StreamingHttpResponse(lines, content_type="application/x-ndjson"), "metrics.jsonl")

    @extend_schema(
        operation_id="training_jobs_per_epoch_retrieve",
        summary="The means of each epoch of a job, per-epoch.json",
        responses=PerEpochOut,
    )
    @action(detail=True, pagination_class=None, url_path="per-epoch.json", url_name="per-epoch")
    def per_epoch_file(self, request: Request, pk: UUID) -> Response:
        """With its tools and questions, and the means over all of them; `complete`: the job has ended."""
        return _file(Response(per_epoch(run_get(self.actor, pk))), "per-epoch.json")

    @extend_schema(
        description="What was trained on what data, how it was proven, what it cost and what it warns of.",
        operation_id="training_jobs_model_card_retrieve",
        summary="The model card of a job, model-card.md",
        responses={(200, "text/markdown"): OpenApiResponse(OpenApiTypes.STR, "Markdown.")},
    )
    @action(detail=True, pagination_class=None, url_path="model-card.md", url_name="model-card")
    def model_card_file(self, request: Request, pk: UUID) -> HttpResponse:
        card = model_card(run_get(self.actor, pk))
        return _file(HttpResponse(card, content_type="text/markdown; charset=utf-8"), "model-card.md")

    @extend_schema(
        operation_id="training_jobs_curves_retrieve",
        summary="The training curves of a job, curves.svg",
        responses={(200, "image/svg+xml"): OpenApiResponse(OpenApiTypes.STR, "SVG.")},
    )
    @action(detail=True, pagination_class=None, url_path="curves.svg", url_name="curves")
    def curves_file(self, request: Request, pk: UUID) -> HttpResponse:
        """Success rate, reward, entropy and loss over the iterations so far, as a picture."""
        curves = training_curves(run_get(self.actor, pk))
        return _file(HttpResponse(curves, content_type="image/svg+xml"), "curves.svg")

    # -- shared ----------------------------------------------------------------------------------------------------

    def _started(self, values: dict[str, Any]) -> Response:
        agent, dataset = self._sources(values)
        rows = values.pop("training_data", None)
        priority = PRIORITIES[values.pop("priority")]
        run = run_start(self.actor, agent=agent, dataset=dataset, rows=rows, priority=priority, **values)
        return self._job(run.job_id, status=201)

    def _sources(self, values: dict[str, Any]) -> tuple[Any, Any]:
        agent = agent_get(self.actor, values.pop("agent"))
        dataset_id = values.pop("dataset_id", None)
        return agent, dataset_get(self.actor, dataset_id) if dataset_id else None

    def _moved(self, pk: UUID, move: Callable[[Any, Job], Job]) -> Response:
        move(self.actor, run_get(self.actor, pk).job)
        return self._job(pk)

    def _job(self, pk: UUID, status: int = 200) -> Response:
        headers = {"Location": placed(f"/api/v1/training-jobs/{pk}")} if status == 201 else None
        return Response(JobOut(run_get(self.actor, pk)).data, status=status, headers=headers)


def _file(response: Answer, name: str) -> Answer:
    """The answer as a file to save under this name."""
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response
