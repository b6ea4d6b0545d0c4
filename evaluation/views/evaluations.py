"""Console pages of evaluation: the list, a report, and the form of a new one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import messages
from django.db.models import CharField, F, FloatField, Q, Value
from django.db.models.functions import Cast, Coalesce
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render

from agentcore_site.console.pages import Sort, allowed, listing, matching, page, post_page, query_params, side_panel
from agentcore_site.console.tables import columns
from agentcore_site.jobs.models import Status
from agentcore_site.jobs.services import job_cancel, job_resume, may_cancel
from agentcore_site.lib.errors import Invalid
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from evaluation.graded import evaluated_digest
from evaluation.models import Against, EvaluationRun, Split
from evaluation.presenters.charts import metric_rows, metrics_forest
from evaluation.presenters.shapes import EvaluationRow
from evaluation.reports import LINE_NAMES
from evaluation.selectors import changed_queries, evaluation_get, evaluations_visible
from evaluation.services import evaluation_start
from training.grading.selectors import errors_of_runs
from training.selectors.runs import run_get
from training.services.checkpoints import checkpoint_of, job_with_queries

SORTS = (
    Sort("newest", "newest first", "job__created_at"),
    Sort("oldest", "oldest first", "job__created_at", descending=False),
    Sort("gain", "largest gain", "gain"),
)
STATUSES = (("done", "With a report"), ("active", "Without a report yet"))
CHANGED = 15  # of each test set, unless ?all=yes
COLUMNS = columns("agent=agent.slug", EvaluationRow)


@page
def evaluations(request: HttpRequest, actor: Actor) -> HttpResponse:
    everything = evaluations_visible(actor)
    rows = everything.annotate(key=Cast("job_id", CharField()))
    query, split, status = query_params(request, "q", "split", "status")
    rows = matching(rows, query, "agent__name", "agent__slug", also=Q(key__endswith=query.lower()))
    if split in Split.values:
        rows = rows.filter(split=split)
    if status in dict(STATUSES):
        rows = rows.exclude(report={}) if status == "done" else rows.filter(report={})
    gain = Cast(F("report__lines__held_out__metrics__success_rate__improvement"), FloatField())
    rows = rows.annotate(gain=Coalesce(gain, Value(-10.0)))
    found = listing(request, rows, SORTS, one="evaluation", of=everything, columns=COLUMNS)
    context = {
        "listing": found,
        "rows": _summaries(found.rows),
        "splits": Split.choices,
        "split": split,
        "status": status,
        "statuses": STATUSES,
        **side_panel(request, "evaluation/_panel.html", lambda key: _beside(evaluation_get(actor, key))),
    }
    return render(request, "evaluation/evaluations.html", context)


@page
def report(request: HttpRequest, actor: Actor, job_id: Any) -> HttpResponse:
    evaluation = evaluation_get(actor, job_id)
    context = {
        "evaluation": evaluation,
        "job": evaluation.job,
        "can_cancel": evaluation.job.active and may_cancel(actor, evaluation.job),
        "can_resume": evaluation.job.status == Status.PAUSED and actor.may("run.resume", evaluation.organization_id),
        "test_sets": _test_sets(evaluation, None if request.GET.get("all") == "yes" else CHANGED),
        "report": evaluation.report,
    }
    part = request.GET.get("part") == "progress"
    return render(request, "evaluation/_progress.html" if part else "evaluation/report.html", context)


@page
def report_json(request: HttpRequest, actor: Actor, job_id: Any) -> HttpResponse:
    evaluation = evaluation_get(actor, job_id)
    body = {
        "evaluation_id": str(evaluation.job_id),
        "status": evaluation.job.status,
        "agent": evaluation.agent.slug,
        "job_id": str(evaluation.run_id),
        "checkpoint": evaluation.checkpoint.label,
        "split": evaluation.split,
        "samples": evaluation.samples,
        "against": evaluation.against,
        "temperature": evaluation.temperature,
        "seed": evaluation.seed,
        "report": evaluation.report or None,
    }
    return JsonResponse(body, json_dumps_params={"indent": 2, "ensure_ascii": False})


@page
def of_run(request: HttpRequest, actor: Actor, job_id: Any) -> HttpResponse:
    """A run's evaluations, as the tab of the job page shows them."""
    run = run_get(actor, job_id)
    rows = evaluations_visible(actor).filter(run=run).order_by("-job__created_at")[:50]
    context = {
        "run": run,
        "rows": _summaries(list(rows)),
        "may": allowed(actor, run.organization_id),
        "has_checkpoint": run.checkpoints.exists(),
    }
    return render(request, "evaluation/_of_run.html", context)


@page
def start(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Starts an evaluation; a GET with ``checkpoint`` and ``split`` shows the form, filled in."""
    if request.method != "POST":
        asked_of = checkpoint_of(actor, request.GET.get("checkpoint", ""))
        require(actor, "evaluate", asked_of.organization_id)
        run, split = run_get(actor, job_with_queries(asked_of)), request.GET.get("split", "")
        context = {"checkpoint": asked_of, "run": run, "split": split}
        return render(request, "evaluation/start.html", context)
    run = run_get(actor, request.POST.get("run", ""))
    chosen = request.POST.get("checkpoint", "")
    split = request.POST.get("split", Split.HELD_OUT)
    if split not in (Split.HELD_OUT, Split.SELECTION):
        raise Invalid("Evaluate on the held-out or on the selection queries.")
    checkpoint = checkpoint_of(actor, chosen) if chosen else None
    against = Against.NOTHING if request.POST.get("against") == Against.NOTHING else Against.BEGAN
    evaluation = evaluation_start(actor, run=run, checkpoint=checkpoint, split=split, against=against)
    messages.success(request, "The evaluation is queued. Its report appears here.")
    return redirect("evaluation:report", job_id=evaluation.pk)


@post_page
def cancel(request: HttpRequest, actor: Actor, job_id: Any) -> HttpResponse:
    evaluation = evaluation_get(actor, job_id)
    job_cancel(actor, evaluation.job)
    return redirect("evaluation:report", job_id=evaluation.pk)


@post_page
def resume(request: HttpRequest, actor: Actor, job_id: Any) -> HttpResponse:
    """Resumes a paused evaluation, e.g. after its job's budget was raised."""
    evaluation = evaluation_get(actor, job_id)
    job_resume(actor, evaluation.job)
    return redirect("evaluation:report", job_id=evaluation.pk)


def _summaries(rows: Sequence[EvaluationRun]) -> list[dict[str, Any]]:
    """Rows of a list, with the error rates of their graders."""
    errors = errors_of_runs((one.run, evaluated_digest(one)) for one in rows)
    return [{**_summary(one), "grader_errors": rates} for one, rates in zip(rows, errors, strict=True)]


def _summary(evaluation: EvaluationRun) -> dict[str, Any]:
    """One row of a list: the evaluation and the success rate of its first test set, once there is a report."""
    report: dict[str, Any] = evaluation.report
    primary = report["lines"][report["primary"]] if report else None
    success = primary["metrics"]["success_rate"] if primary else None
    return {"evaluation": evaluation, "success": success, "n": primary["n_queries"] if primary else None}


def _beside(evaluation: EvaluationRun) -> dict[str, Any]:
    """The side panel of the list: by test set the verdict and the forest plot."""
    test_sets = (evaluation.report.get("lines") or {}).items()
    drawn = [{"verdict": one["verdict"], "forest": metrics_forest(key, one)} for key, one in test_sets]
    return {"evaluation": evaluation, "test_sets": drawn}


def _test_sets(evaluation: EvaluationRun, limit: int | None) -> list[dict[str, Any]]:
    """Every test set of the report with its rows, its plot and the queries with the largest changes."""
    shown = []
    for key, one in (evaluation.report.get("lines") or {}).items():
        changed = changed_queries(evaluation, key)
        shown.append(
            {
                "key": key,
                "name": LINE_NAMES.get(key, key.replace("_", " ")),
                "verdict": one["verdict"],
                "n_queries": one["n_queries"],
                "samples": one["samples"],
                "rows": metric_rows(one),
                "forest": metrics_forest(key, one),
                "changed": changed[:limit],
                "n_changed": len(changed),
            }
        )
    return shown
