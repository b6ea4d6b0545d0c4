"""The search box of the top bar: agents, jobs and evaluations by name or identifier."""

from __future__ import annotations

from django.db.models import CharField, Q
from django.db.models.functions import Cast
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from agentcore_site.console.pages import page
from agentcore_site.tenancy.actors import Actor
from evaluation.selectors import evaluations_visible
from experiences.models.agent_lookup import agents_visible
from training.selectors.runs import runs_visible

SHOWN = 6


@page
def search(request: HttpRequest, actor: Actor) -> HttpResponse:
    query = request.GET.get("q", "").strip()
    context: dict[str, object] = {"q": query}
    if query:
        named = Q(agent__name__icontains=query) | Q(agent__slug__icontains=query) | Q(job__title__icontains=query)
        named |= Q(key__endswith=query.lower())
        key = Cast("job_id", CharField())
        context["agents"] = list(
            agents_visible(actor).filter(Q(name__icontains=query) | Q(slug__icontains=query)).order_by("name")[:SHOWN]
        )
        context["runs"] = list(runs_visible(actor).annotate(key=key).filter(named).order_by("-job__created_at")[:SHOWN])
        context["evaluations"] = list(
            evaluations_visible(actor).annotate(key=key).filter(named).order_by("-job__created_at")[:SHOWN]
        )
    return render(request, "agentcore_site/search.html", context)
