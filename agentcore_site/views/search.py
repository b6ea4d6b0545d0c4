"""The search box of the top bar: agents, jobs and evaluations by name or identifier."""

from __future__ import annotations

from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from agentcore_site.console.pages import page
from agentcore_site.tenancy.actors import Actor
from evaluation.selectors import evaluations_visible
from experiences.models.agent_lookup import agents_visible
from training.selectors.runs import runs_visible, searched

SHOWN = 6


@page
def search(request: HttpRequest, actor: Actor) -> HttpResponse:
    query = request.GET.get("q", "").strip()
    context: dict[str, object] = {"q": query}
    if query:
        context["agents"] = list(
            agents_visible(actor).filter(Q(name__icontains=query) | Q(slug__icontains=query)).order_by("name")[:SHOWN]
        )
        for name, rows in (("runs", runs_visible(actor)), ("evaluations", evaluations_visible(actor))):
            context[name] = list(searched(rows, query).order_by("-job__created_at")[:SHOWN])
    return render(request, "agentcore_site/search.html", context)
