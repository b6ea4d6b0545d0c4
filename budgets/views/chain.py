"""The budgets that a job is paid from, and which of them stopped it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from agentcore_site.console.pages import allowed, page, post_page
from agentcore_site.jobs.models import Job, Reason, Status
from agentcore_site.lib.errors import Missing
from agentcore_site.lib.links import absolute
from agentcore_site.templatetags.console import job_url
from agentcore_site.tenancy.actors import Actor
from budgets.alerts.raise_requests import raise_ask
from budgets.job_chain import blocking, chain_of, job_bill
from budgets.models import Scope
from budgets.presenters.naming import agent_names
from budgets.selectors import Headroom, Spending


@dataclass(frozen=True, slots=True)
class Link:
    """One budget of the chain. ``stopped``: this one refused the job's next call."""

    room: Headroom
    title: str
    name: str
    stopped: bool

    @property
    def used(self) -> float | None:
        if self.room.limit_micros is None:
            return None
        return (
            (self.room.spent_micros + self.room.reserved_micros + self.room.debt_micros) / self.room.limit_micros
            if self.room.limit_micros
            else 1.0
        )


@dataclass(frozen=True, slots=True)
class JobChain:
    """``links`` outermost first. ``paused``: the job waits for room; ``roomy``: there is room again for a call like
    the last one that it made. ``bill``: what it spent (``total_micros``) by purpose and by model."""

    links: list[Link]
    paused: bool
    roomy: bool
    bill: tuple[tuple[str, list[Spending]], ...]
    total_micros: int


def chain_shown(actor: Actor, job: Job) -> JobChain:
    """Raises:
    Missing: another organisation's job, or none."""
    if not Job.objects.visible_to(actor).filter(id=job.id).exists():
        raise Missing("There is no such job.")
    rooms = chain_of(job)
    paused = job.status == Status.PAUSED and job.status_reason == Reason.BUDGET_EXCEEDED
    stopping = blocking(job)
    roomy = paused and stopping is None
    names = _names(actor, job, rooms)
    blocked = None if stopping is None else stopping.scope
    links = [Link(room, Scope(room.scope).label, names[room.scope], room.scope == blocked) for room in rooms]
    by_purpose, by_model = job_bill(job)
    return JobChain(
        links, paused, roomy, (("Purpose", by_purpose), ("Model", by_model)), sum(one.cost_micros for one in by_model)
    )


@page
def chain(request: HttpRequest, actor: Actor, job_id: UUID) -> HttpResponse:
    job = Job.objects.visible_to(actor).select_related("organization").filter(id=job_id).first()
    if job is None:
        raise Missing("There is no such job.")
    context = {"chain": chain_shown(actor, job), "job": job, "may": allowed(actor, job.organization_id)}
    return render(request, "budgets/_chain.html", context)


@post_page
def ask(request: HttpRequest, actor: Actor, job_id: UUID) -> HttpResponse:
    """Mails those who may raise the budget that stopped the job."""
    job = Job.objects.visible_to(actor).select_related("organization").filter(id=job_id).first()
    if job is None:
        raise Missing("There is no such job.")
    asked = raise_ask(actor, job, link=partial(absolute, request))
    messages.success(request, f"A mail is on its way to {', '.join(one.username for one in asked)}.")
    return redirect(job_url(job))


def _names(actor: Actor, job: Job, rooms: list[Headroom]) -> dict[str, str]:
    agent_id = next((room.budget.agent_id for room in rooms if room.budget and room.budget.agent_id), None)
    agents = agent_names(actor, [agent_id])
    named = agents.get(agent_id, "its agent") if agent_id else "its agent"
    return {Scope.ORGANIZATION: str(job.organization), Scope.AGENT: named, Scope.JOB: str(job)}
