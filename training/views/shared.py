"""A job as a stakeholder without an account sees it: read only, and nothing that leads further."""

from __future__ import annotations

from typing import Final

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse

from agentcore_site.jobs.selectors import shared_job
from agentcore_site.lib.links import placed
from agentcore_site.lib.money import dollars
from training.grading.selectors import errors_of
from training.models import TrainingRun
from training.presenters import panel
from training.selectors.runs import run_series
from training.views.jobs import after_of

SHARED_METRICS: Final = ("n", "trajectories", "cost_usd", "seconds", "success_rate")


def job(request: HttpRequest, token: str) -> HttpResponse:
    run = _run(token)
    context = {
        **panel.head(run),
        **panel.curves(shared=True),
        "shared": True,
        "grader_errors": errors_of(run),
        "token": token,
        "series_url": reverse("training:shared_series", args=[token]),
        "socket": placed(f"/ws/shared/{token}/"),
        "watching": panel.watching(run),
        "budget_usd": dollars(run.limit_micros),
    }
    return _private(render(request, "training/shared.html", context))


def status(request: HttpRequest, token: str) -> HttpResponse:
    context = {**panel.head(_run(token)), "shared": True, "token": token}
    return _private(render(request, "training/_head.html", context))


def series(request: HttpRequest, token: str) -> HttpResponse:
    """Only what the one chart shows."""
    found = run_series(_run(token), after_of(request))
    found["iterations"] = [{name: point[name] for name in SHARED_METRICS} for point in found["iterations"]]
    return _private(JsonResponse(found))


def _run(token: str) -> TrainingRun:
    found = shared_job(token)
    rows = TrainingRun.objects.select_related("job", "agent", "best_checkpoint")
    run = rows.filter(job=found).first() if found is not None else None
    if run is None:
        raise Http404("This link was revoked, has come to its end, or never was.")
    return run


def _private(response: HttpResponse) -> HttpResponse:
    """The address is the secret: it goes to no search engine, cache or other site."""
    response["X-Robots-Tag"] = "noindex, nofollow"
    response["Cache-Control"] = "no-store"
    response["Referrer-Policy"] = "no-referrer"
    return response
