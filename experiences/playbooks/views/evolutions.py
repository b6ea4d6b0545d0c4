"""Evolutions and the executions that they learn from."""

from __future__ import annotations

from typing import Any, Final

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from agentcore_site.console.pages import allowed, page, post_page
from agentcore_site.jobs.models import Status
from agentcore_site.jobs.services import job_cancel, may_cancel
from agentcore_site.lib.errors import Conflict, Insufficient, TooMany, Unavailable
from agentcore_site.tenancy.actors import Actor
from experiences.playbooks.presenters.evolutions import evolution_words, rounds_of, suggestions
from experiences.playbooks.selectors import (
    evolution_get,
    evolutions_visible,
    executions_of,
    playbook_get,
    trace_get,
)
from experiences.playbooks.services.evolutions import evolution_queue, evolution_retry

SHOWN: Final = 10


@post_page
def evolve(request: HttpRequest, actor: Actor, agent_id: Any) -> HttpResponse:
    """Queues one. What keeps it from that is said on the page itself."""
    playbook = playbook_get(actor, agent_id)
    try:
        evolution_queue(actor, playbook)
    except (Conflict, TooMany, Unavailable, Insufficient) as error:
        messages.error(request, error.message)
    else:
        messages.success(request, "Queued. Suggested changes appear here automatically.")
    return redirect(f"{reverse('experiences:playbook', args=[playbook.agent_id])}?tab=evolution")


@page
def evolution(request: HttpRequest, actor: Actor, job_id: Any) -> HttpResponse:
    found = evolution_get(actor, job_id)
    may = allowed(actor, found.organization_id)
    context = {
        "evolution": found,
        "agent": found.agent,
        "job": found.job,
        "verdict": evolution_words(found),
        "rounds": rounds_of(found),
        "suggestions": suggestions(found),
        "executions": executions_of(actor, found),
        "may": may,
        "can_cancel": found.job.active and may_cancel(actor, found.job),
        "can_retry": found.job.status in (Status.FAILED, Status.PAUSED) and "playbook.evolve" in may,
    }
    return render(request, "playbooks/evolution.html", context)


@post_page
def cancel(request: HttpRequest, actor: Actor, job_id: Any) -> HttpResponse:
    found = evolution_get(actor, job_id)
    job_cancel(actor, found.job)
    messages.success(request, "Cancelled. The playbook stays as it is.")
    return redirect("experiences:evolution", job_id=found.job_id)


@post_page
def retry(request: HttpRequest, actor: Actor, job_id: Any) -> HttpResponse:
    found = evolution_get(actor, job_id)
    try:
        evolution_retry(actor, found)
    except (Conflict, Unavailable) as error:
        messages.error(request, error.message)
    else:
        messages.success(request, "The evolution runs again with new model calls.")
    return redirect("experiences:evolution", job_id=found.job_id)


@page
def execution(request: HttpRequest, actor: Actor, trace_id: Any) -> HttpResponse:
    """One execution: its input, its output, the agent's context, and the evolutions that read it."""
    row = trace_get(actor, trace_id)
    readers = evolutions_visible(actor).filter(agent_id=row.agent_id, trace_ids__contains=[row.pk])
    context = {
        "row": row,
        "agent": row.agent,
        "evolutions": readers.order_by("-job__created_at")[:SHOWN],
        "days": settings.ACE_TRACE_DAYS,
    }
    return render(request, "playbooks/evolution_execution.html", context)
