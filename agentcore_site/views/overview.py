"""The first page: tasks for the user, running jobs, gains, and workers."""

from __future__ import annotations

from datetime import timedelta

from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from agentcore_site.console.pages import page
from agentcore_site.jobs.models import Job, Status
from agentcore_site.jobs.selectors import jobs_visible
from agentcore_site.jobs.workers import workers_seen
from agentcore_site.tenancy.actors import Actor
from agentcore_site.views.guide import guide_shown
from budgets.alerts.delivery import subject
from budgets.selectors import alerts_standing
from experiences.models.agent_lookup import agents_visible
from experiences.playbooks.selectors import waiting_count
from training.presenters.summaries import gains_by_agent, success_sparks
from training.selectors.runs import run_verdict, runs_visible

RECENT = timedelta(days=7)
SHOWN = 8


@page
def overview(request: HttpRequest, actor: Actor) -> HttpResponse:
    stopped = jobs_visible(actor).filter(
        Q(status=Status.PAUSED) | Q(status=Status.FAILED, finished_at__gt=timezone.now() - RECENT)
    )
    running = list(
        runs_visible(actor).filter(job__status__in=(Status.RUNNING, Status.QUEUED)).order_by("job__created_at")[:SHOWN]
    )
    sparks = success_sparks(running)
    agents = agents_visible(actor)
    alerts = alerts_standing(actor, since=timezone.now() - RECENT, limit=SHOWN)
    context = {
        "alerts": [{"alert": alert, "text": subject(alert)} for alert in alerts],
        "to_review": waiting_count(actor),
        "stopped": list(stopped.order_by("-updated_at")[:SHOWN]),
        "n_stopped": stopped.count(),
        "running": [{"run": run, "verdict": run_verdict(run), "spark": sparks[run.pk]} for run in running],
        "n_running": runs_visible(actor).filter(job__status__in=(Status.RUNNING, Status.QUEUED)).count(),
        "gains": gains_by_agent(agents, limit=SHOWN),
        "n_agents": agents.count(),
        **guide_shown(request, actor),
    }
    return render(request, "agentcore_site/overview.html", context)


@page
def workers(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Workers that are at work or answer, and the queue of the actor's organisations. Loaded after the page: asking
    takes time."""
    jobs = jobs_visible(actor)
    waiting = jobs.filter(status=Status.QUEUED).order_by("created_at")
    context = {
        "workers": workers_seen(),
        "held": list(
            Job.objects.visible_to(actor)
            .filter(lease_until__gt=timezone.now())
            .values("worker")
            .annotate(n=Count("id"))
            .order_by("worker")
        ),
        "n_queued": waiting.count(),
        "n_running": jobs.filter(status=Status.RUNNING).count(),
        "oldest": waiting.first(),
    }
    return render(request, "agentcore_site/_workers.html", context)
