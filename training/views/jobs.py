"""The list of training jobs, and one job's page with its live parts and buttons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from django.contrib import messages
from django.db.models import F, FloatField, Value
from django.db.models.functions import Cast, Coalesce
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from agentcore_site.console.columns import LISTS
from agentcore_site.console.pages import (
    Sort,
    allowed,
    is_part,
    listing,
    page,
    post_page,
    query_params,
    side_panel,
    whole_number,
)
from agentcore_site.console.snippets import snippets
from agentcore_site.console.tables import Table, columns, noted
from agentcore_site.jobs.models import SHARE_DAYS, Job, Status
from agentcore_site.jobs.selectors import share_links
from agentcore_site.jobs.services import (
    job_cancel,
    job_pause,
    job_resume,
    may_cancel,
    share_create,
    share_revoke,
    share_revoke_all,
)
from agentcore_site.lib.errors import DomainError, Invalid
from agentcore_site.lib.links import absolute, placed, site_of
from agentcore_site.lib.money import dollars
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.members import who_may
from agentcore_site.tenancy.permissions import require
from budgets.alerts.job_stops import blocked
from budgets.alerts.raise_requests import asked_at
from budgets.job_chain import blocking
from training.grading.selectors import errors_of_runs
from training.models import Iteration, TrainingRun
from training.presenters import panel
from training.presenters.requests import again_call, watch_call
from training.presenters.shapes import JobRow
from training.presenters.summaries import success_sparks
from training.presenters.tabs import tab_context, tabs_of
from training.selectors import going_on
from training.selectors.notes import comments_of, pinned_jobs
from training.selectors.runs import SERIES_METRICS, described, run_get, run_series, run_verdict, runs_visible, searched
from training.services.going_on import run_go_on

SHARE_CHOICES: Final = (1, 7, SHARE_DAYS, 90, 366)  # days
STATUSES = ("running", "queued", "paused", "completed", "failed", "cancelled")
SORTS = (
    Sort("newest", "newest first", "job__created_at"),
    Sort("oldest", "oldest first", "job__created_at", descending=False),
    Sort("gain", "proven gain", "gain"),
    Sort("cost", "cost", "cost_micros"),
    Sort("trajectories", "trajectories", "trajectories"),
)
SERIES_COLUMNS = columns(
    "iteration=number trajectories cost_micros rollout_ms update_ms at=created_at "
    + " ".join(f"{name}=metrics.{name}" for name in SERIES_METRICS)
)


@page
def jobs(request: HttpRequest, actor: Actor) -> HttpResponse:
    everything = runs_visible(actor)
    status, agent, query, tag = query_params(request, "status", "agent", "q", "tag")
    rows = searched(everything, query, also=described(query)) if query else everything
    if status in STATUSES:
        rows = rows.filter(job__status=status)
    if agent:
        rows = rows.filter(agent__slug=agent)
    if tag:
        rows = rows.filter(tags__contains=[tag])
    pinned = pinned_jobs(actor)
    found = listing(
        request,
        rows.annotate(gain=Coalesce(Cast(F("verdict__improvement"), FloatField()), Value(-10.0))),
        SORTS,
        one="job",
        of=everything,
        columns=columns("preset", JobRow),
        first=pinned,
        at_once=bool(query),
    )
    sparks = success_sparks(found.rows)
    errors = errors_of_runs((run, "") for run in found.rows)
    context = {
        "listing": found,
        "rows": [
            {
                "run": run,
                "verdict": run_verdict(run),
                "spark": sparks[run.pk],
                "pinned": run.pk in pinned,
                "grader_errors": rates,
            }
            for run, rates in zip(found.rows, errors, strict=True)
        ],
        "tag": tag,
        "statuses": STATUSES,
        "status": status,
        "agent": agent,
        **LISTS["jobs"].context(request),
        **side_panel(request, "training/_panel.html", lambda key: panel.head(run_get(actor, key))),
    }
    return render(request, "training/jobs.html", context)


@page
def job(request: HttpRequest, actor: Actor, job_id: Any) -> HttpResponse:
    return _job_page(request, actor, run_get(actor, job_id))


def _job_page(request: HttpRequest, actor: Actor, run: TrainingRun, *, status: int = 200, **typed: str) -> HttpResponse:
    """``typed``: the ``amount`` of a refused form, and its ``amount_error``."""
    may = allowed(actor, run.organization_id)
    tabs = tabs_of(run, may)
    tab = request.GET.get("tab", tabs[0].key)
    tab = tab if any(tab == one.key for one in tabs) else tabs[0].key
    context = {
        **panel.head(run),
        **tab_context(request, actor, run, tab),
        **_permissions(run, actor, may),
        "tab": tab,
        "tabs": tabs,
        "series_url": reverse("training:series", args=[run.pk]),
        "socket": placed(f"/ws/jobs/{run.pk}/"),
        "comments": comments_of(actor, run),
        "me": actor.user.pk,
        "pinned": run.pk in pinned_jobs(actor),
        "watching": panel.watching(run),
        "budget_usd": dollars(run.limit_micros),
        "links": share_links(actor, run.job) if "share.edit" in may else [],
        "share_days": SHARE_CHOICES,
        "watch": snippets(watch_call(run), site_of(request)),
        "again": snippets(again_call(run), site_of(request)),
        **typed,
    }
    return render(request, "training/job.html", context, status=status)


@page
def status(request: HttpRequest, actor: Actor, job_id: Any) -> HttpResponse:
    """The head of the page again: htmx inserts it when the socket reports a change of the job."""
    return _head(request, actor, run_get(actor, job_id))


@page
def series(request: HttpRequest, actor: Actor, job_id: Any) -> HttpResponse:
    run = run_get(actor, job_id)
    noted(request, Table("curves", SERIES_COLUMNS, Iteration.objects.filter(run=run), "number"))
    return JsonResponse(run_series(run, after_of(request)))


@post_page
def pause(request: HttpRequest, actor: Actor, job_id: Any) -> HttpResponse:
    return _moved(request, actor, job_id, job_pause)


@post_page
def resume(request: HttpRequest, actor: Actor, job_id: Any) -> HttpResponse:
    return _moved(request, actor, job_id, job_resume)


@post_page
def cancel(request: HttpRequest, actor: Actor, job_id: Any) -> HttpResponse:
    """Cancelling can't be undone, so the form asks for the job's name. Its agent's slug is taken too."""
    run = run_get(actor, job_id)
    if request.POST.get("confirm", "").strip() not in (str(run.job).strip(), run.agent.slug):
        raise Invalid(f"To cancel, type the job's name: {run.job}.", fields={"confirm": "Not the name."})
    return _moved(request, actor, job_id, job_cancel)


@post_page
def go_on(request: HttpRequest, actor: Actor, job_id: Any) -> HttpResponse:
    """Starts the next job from a finished one. A refusal is shown on the page of the finished job."""
    run = run_get(actor, job_id)
    require(actor, "run.start", run.organization_id)
    typed = request.POST.get("max_budget_usd", "")
    try:
        further = run_go_on(actor, run, max_budget_usd=_amount(typed))
    except DomainError as error:
        return _job_page(request, actor, run, status=error.code, amount=typed, amount_error=error.message)
    messages.success(request, "The next job is queued. This page follows it live.")
    return redirect("training:job", job_id=further.pk)


def _amount(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise Invalid("Give an amount in dollars, such as 2.50.") from None


@post_page
def share(request: HttpRequest, actor: Actor, job_id: Any) -> HttpResponse:
    """Makes a link and shows it, once."""
    run = run_get(actor, job_id)
    token = share_create(actor, run.job, days=whole_number(request.POST, "days") or SHARE_DAYS)
    link = absolute(request, reverse("training:shared", args=[token]))
    if not is_part(request):
        messages.success(request, f"Link, shown once: {link}")
        return redirect("training:job", job_id=run.pk)
    return render(request, "training/_shared_link.html", {"link": link, "run": run})


@post_page
def unshare(request: HttpRequest, actor: Actor, job_id: Any) -> HttpResponse:
    run = run_get(actor, job_id)
    revoked = share_revoke_all(actor, run.job)
    links = "link" if revoked == 1 else "links"
    messages.success(request, f"{revoked} {links} revoked. They no longer open the job.")
    return redirect("training:job", job_id=run.pk)


@post_page
def unshare_one(request: HttpRequest, actor: Actor, job_id: Any, link_id: UUID) -> HttpResponse:
    run = run_get(actor, job_id)
    share_revoke(actor, run.job, link_id)
    messages.success(request, "The link was revoked.")
    return redirect("training:job", job_id=run.pk)


def after_of(request: HttpRequest) -> int:
    try:
        return max(0, int(request.GET.get("after", "0")))
    except ValueError:
        return 0


def _moved(request: HttpRequest, actor: Actor, job_id: Any, move: Callable[[Any, Job], Job]) -> HttpResponse:
    run = run_get(actor, job_id)
    move(actor, run.job)
    return _head(request, actor, run) if is_part(request) else redirect("training:job", job_id=run.pk)


def _head(request: HttpRequest, actor: Actor, run: TrainingRun) -> HttpResponse:
    context = {**panel.head(run), **_permissions(run, actor, allowed(actor, run.organization_id))}
    return render(request, "training/_head.html", context)


def _permissions(run: TrainingRun, actor: Actor, may: frozenset[str]) -> dict[str, Any]:
    """The template context for the buttons that the actor may use."""
    status = run.job.status
    return {
        "may": may,
        "can_pause": "run.pause" in may and run.job.pausable,
        "can_resume": "run.resume" in may and (status in (Status.PAUSED, Status.FAILED) or run.job.requested != ""),
        "can_cancel": run.job.active and may_cancel(actor, run.job),
        "can_duplicate": "run.start" in may,
        "can_share": "share.edit" in may,
        **(_further(run) if "run.start" in may and not going_on.fault(run) else {}),
        **(_stopped(run, may) if status == Status.PAUSED else {}),
    }


def _further(run: TrainingRun) -> dict[str, Any]:
    """The amount for which a finished job goes on, and the gain that it lets expect."""
    return {"further": going_on.outlook(run, going_on.usual_amount_usd(run))}


def _stopped(run: TrainingRun, may: frozenset[str]) -> dict[str, Any]:
    """Cause of a job that a budget stopped, and the people who can raise the budget."""
    if (room := blocking(run.job)) is None:
        return {}
    raising = "budget.edit" in may
    return {
        "no_room": blocked(room),
        "raise_budget": room.budget if raising else None,
        "raisers": [] if raising else who_may(run.organization_id, "budget.edit"),
        "raise_asked": asked_at(run.job),
    }
