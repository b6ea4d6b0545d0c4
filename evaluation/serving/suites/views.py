"""Pages of suites: the list, one with its history, a run with its findings."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.db.models import F
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from agentcore_site.console.pages import Sort, listing, page, post_page, query_params, sent, whole_number
from agentcore_site.jobs.models import Status
from agentcore_site.jobs.services import job_cancel, job_resume, may_cancel
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import current_organization, require
from evaluation.serving.models import SuiteKind
from evaluation.serving.suites.filters import OUTCOMES, SuiteFilters, SuiteResultFilters, SuiteRunFilters
from evaluation.serving.suites.forms import RunForm, SuiteForm, VersionForm
from evaluation.serving.suites.overlaps import overlaps
from evaluation.serving.suites.presenters import (
    SuiteOut,
    SuiteRunOut,
    built_in_to_add,
    categories_of,
    history_of,
    is_safety,
)
from evaluation.serving.suites.selectors import (
    last_scored,
    results_visible,
    suite_get,
    suite_run_get,
    suite_runs_visible,
    suites_visible,
    trajectories_of,
    version_get,
)
from evaluation.serving.suites.services import (
    suite_archive,
    suite_built_in_add,
    suite_create,
    suite_run_start,
    suite_version_add,
)
from experiences.agents.selectors import dataset_get
from experiences.models.agent_lookup import agent_get

SORTS = (Sort("name", "name", "name", descending=False), Sort("newest", "newest first", "created_at"))
RUN_SORTS = (
    Sort("newest", "newest first", "job__created_at"),
    Sort("oldest", "oldest first", "job__created_at", descending=False),
)
RESULT_SORTS = (
    Sort("order", "as asked", "place", descending=False),
    Sort("cost", "highest cost", "cost_micros", former="dearest"),
)


@page
def suites(request: HttpRequest, actor: Actor) -> HttpResponse:
    everything = suites_visible(actor)
    query, kind = query_params(request, "q", "kind")
    rows = SuiteFilters.on_page(everything, {"search": query, "kind": kind})
    found = listing(request, rows, SORTS, one="suite", of=everything, columns=SuiteOut)
    agent = agent_get(actor, request.GET["agent"]) if request.GET.get("agent") else None
    last = last_scored(actor, found.rows, agent)
    context = {
        "listing": found,
        "rows": [{"suite": row, "last": last.get(row.pk)} for row in found.rows],
        "q": query,
        "kind": kind,
        "kinds": SuiteKind.choices,
        "agent": agent,
        "to_add": built_in_to_add(list(suites_visible(actor, archived=True))),
    }
    return render(request, "suites/suites.html", context)


@page
def suite_new(request: HttpRequest, actor: Actor) -> HttpResponse:
    require(actor, "suite.edit", current_organization(actor))
    form = SuiteForm(sent(request))
    if made := form.applied(suite_create, actor):
        messages.success(request, f"{made.name} was made. Run it on an agent or a release.")
        return redirect("serving:suite", suite_id=made.pk)
    return render(
        request, "suites/suite_form.html", {"form": form, "back": reverse("serving:suites")}, status=form.status
    )


@post_page
def suite_add(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Adds a suite of the program, or its next version."""
    made = suite_built_in_add(actor, name=request.POST.get("built_in", ""))
    messages.success(request, f"{made.name} is here. Run it on an agent or a release.")
    return redirect("serving:suite", suite_id=made.pk)


@page
def suite_version(request: HttpRequest, actor: Actor, suite_id: Any) -> HttpResponse:
    """The next version of a suite."""
    suite = suite_get(actor, suite_id)
    require(actor, "suite.edit", suite.organization_id)
    form = VersionForm(sent(request), initial={"spec": version_get(suite).spec})
    if made := form.applied(suite_version_add, actor, suite):
        messages.success(request, f"Version {made.number} was made; earlier runs stay as they are.")
        return redirect("serving:suite", suite_id=suite.pk)
    back = reverse("serving:suite", args=[suite.pk])
    context = {"form": form, "suite": suite, "back": back}
    return render(request, "suites/suite_form.html", context, status=form.status)


@post_page
def suite_archived(request: HttpRequest, actor: Actor, suite_id: Any) -> HttpResponse:
    found = suite_archive(actor, suite_get(actor, suite_id))
    messages.success(request, f"{found.name} is out of use; its runs stay.")
    return redirect("serving:suites")


@page
def suite(request: HttpRequest, actor: Actor, suite_id: Any) -> HttpResponse:
    """A suite's spec, its history as chart and table, and the form that runs it."""
    found = suite_get(actor, suite_id)
    version = version_get(found, whole_number(request.GET, "version"))
    everything = suite_runs_visible(actor).filter(version__suite=found)
    query, status = query_params(request, "q", "status")
    agent = agent_get(actor, request.GET["agent"]) if request.GET.get("agent") else None
    given = {"search": query, "status": status, "agent": str(agent.pk) if agent else ""}
    rows = SuiteRunFilters.on_page(everything, given, actor=actor)
    chart = history_of(found, version, rows)
    may_run = actor.may("evaluate", found.organization_id) and found.archived_at is None
    initial = {name: request.GET[name] for name in ("subject", "judge_model") if name in request.GET}
    context = {
        "suite": found,
        "version": version,
        "spec": version.parsed,
        "versions": found.versions.order_by("-number"),
        "listing": listing(request, rows, RUN_SORTS, one="run", of=everything, columns=SuiteRunOut),
        "chart": chart,
        "agent": agent,
        "status": status,
        "statuses": Status.choices,
        "form": RunForm(actor, initial=initial) if may_run else None,
        "last_cost_micros": everything.filter(job__status=Status.COMPLETED)
        .values_list("cost_micros", flat=True)
        .first(),
    }
    return render(request, "suites/suite.html", context)


@post_page
def suite_start(request: HttpRequest, actor: Actor, suite_id: Any) -> HttpResponse:
    found = suite_get(actor, suite_id)
    require(actor, "evaluate", found.organization_id)
    form = RunForm(actor, request.POST)
    if run := form.applied(suite_run_start, actor, version_get(found)):
        messages.success(request, "The run is queued. Its results appear here.")
        return redirect("serving:suite_run", job_id=run.pk)
    for texts in form.errors.values():
        messages.error(request, " ".join(map(str, texts)))
    return redirect("serving:suite", suite_id=found.pk)


@page
def suite_run(request: HttpRequest, actor: Actor, job_id: Any) -> HttpResponse:
    """The verdict, the categories with their intervals, and every query with what was answered and why it was judged
    so."""
    run = suite_run_get(actor, job_id)
    query, category, outcome = query_params(request, "q", "category", "outcome")
    readable = actor.may("data.view", run.organization_id)
    everything = results_visible(actor, run) if readable else run.results.none()
    everything = everything.annotate(place=F("part") * 10_000 + F("scenario"))
    rows = SuiteResultFilters.on_page(everything, {"search": query, "category": category, "outcome": outcome})
    found = listing(request, rows, RESULT_SORTS, one="query", of=everything)
    behind = trajectories_of(found.rows, run)
    context = {
        "run": run,
        "job": run.job,
        "report": run.report,
        "safety": is_safety(run),
        "readable": readable,
        "listing": found,
        "rows": [{"result": row, "trajectories": behind.get(row.pk, [])} for row in found.rows],
        "categories": categories_of(run),
        "category": category,
        "outcome": outcome,
        "outcomes": OUTCOMES,
        "can_cancel": run.job.active and may_cancel(actor, run.job),
        "can_resume": run.job.status == Status.PAUSED and actor.may("run.resume", run.organization_id),
    }
    part = request.GET.get("part") == "progress"
    return render(request, "suites/_progress.html" if part else "suites/run.html", context)


@page
def suite_run_json(request: HttpRequest, actor: Actor, job_id: Any) -> HttpResponse:
    run = suite_run_get(actor, job_id)
    body = {
        "run_id": str(run.pk),
        "suite": run.version.suite.name,
        "version": run.version.number,
        "agent": run.agent.slug,
        "release": None if run.release is None else run.release.number,
        "digest": run.digest,
        "status": run.job.status,
        "score": run.score,
        "low": run.low,
        "high": run.high,
        "asked": run.asked,
        "judged": run.judged,
        "report": run.report or None,
    }
    return JsonResponse(body, json_dumps_params={"indent": 2, "ensure_ascii": False})


@post_page
def suite_run_cancel(request: HttpRequest, actor: Actor, job_id: Any) -> HttpResponse:
    job_cancel(actor, suite_run_get(actor, job_id).job)
    return redirect("serving:suite_run", job_id=job_id)


@post_page
def suite_run_resume(request: HttpRequest, actor: Actor, job_id: Any) -> HttpResponse:
    """Goes on with a paused run, e.g. once its budget was raised."""
    job_resume(actor, suite_run_get(actor, job_id).job)
    return redirect("serving:suite_run", job_id=job_id)


@page
def dataset_overlaps(request: HttpRequest, actor: Actor, dataset_id: Any) -> HttpResponse:
    """Proofs that use a dataset's queries: a part of its page."""
    dataset = dataset_get(actor, dataset_id)
    return render(request, "suites/_dataset_overlaps.html", {"overlaps": overlaps(dataset)})
