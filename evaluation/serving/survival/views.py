"""Pages of survival: the form of a measurement on another model, and its result."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from agentcore_site.console.pages import page, post_page, query_params, sent
from agentcore_site.jobs.models import Status
from agentcore_site.jobs.services import job_cancel, job_resume, may_cancel
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require
from evaluation.serving.releases.selectors import bundle_of, release_get
from evaluation.serving.survival.forms import SurvivalForm
from evaluation.serving.survival.presenters import SORTS, lessons_of
from evaluation.serving.survival.selectors import survival_run_get
from evaluation.serving.survival.services import survival_start


@page
def survival(request: HttpRequest, actor: Actor, release_id: Any) -> HttpResponse:
    """The form of a measurement. Its first button shows the estimate, its second one starts."""
    release = release_get(actor, release_id)
    require(actor, "evaluate", release.organization_id)
    form, costs = SurvivalForm(actor, release, sent(request)), None
    if request.POST.get("do") == "estimate":
        costs = form.costs()
    elif made := form.applied(survival_start, actor, release):
        run, is_new = made
        if is_new:
            messages.success(request, "The measurement is queued. Its result appears here.")
        else:
            messages.info(request, "The same was asked for before, and is not paid for twice.")
        return redirect("serving:survival_run", job_id=run.pk)
    bundle = bundle_of(release)
    context = {"release": release, "form": form, "costs": costs, "bundle": bundle}
    return render(request, "survival/new.html", context, status=form.status)


@page
def survival_run(request: HttpRequest, actor: Actor, job_id: Any) -> HttpResponse:
    """The verdict, and each lesson with its outcome, or the progress."""
    run = survival_run_get(actor, job_id)
    [sort] = query_params(request, "sort")
    context = {
        "run": run,
        "job": run.job,
        "report": run.report,
        "lessons": lessons_of(run, sort),
        "sort": sort if sort in SORTS else "outcome",
        "can_cancel": run.job.active and may_cancel(actor, run.job),
        "can_resume": run.job.status == Status.PAUSED and actor.may("run.resume", run.organization_id),
    }
    part = request.GET.get("part") == "progress"
    return render(request, "survival/_progress.html" if part else "survival/run.html", context)


@post_page
def survival_run_cancel(request: HttpRequest, actor: Actor, job_id: Any) -> HttpResponse:
    job_cancel(actor, survival_run_get(actor, job_id).job)
    return redirect("serving:survival_run", job_id=job_id)


@post_page
def survival_run_resume(request: HttpRequest, actor: Actor, job_id: Any) -> HttpResponse:
    """Goes on with a paused measurement, e.g. once a budget was raised."""
    job_resume(actor, survival_run_get(actor, job_id).job)
    return redirect("serving:survival_run", job_id=job_id)
