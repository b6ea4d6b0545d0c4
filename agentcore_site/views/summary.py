"""One page for those who only watch: what each agent gained, what it costs, and what is live."""

from __future__ import annotations

from typing import Final

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from agentcore_site.agent_summaries import agent_summaries, work_summary
from agentcore_site.console.pages import Sort, page
from agentcore_site.tenancy.actors import Actor
from agentcore_site.views.agents import agents_listed
from experiences.models.agent_lookup import agents_visible

AGENTS: Final = 10  # on a page: each is a card with its gains
SORTS: Final = (
    Sort("name", "name", "name", descending=False),
    Sort("newest", "newest first", "created_at"),
)


@page
def summary(request: HttpRequest, actor: Actor) -> HttpResponse:
    everything = agents_visible(actor)
    found = agents_listed(request, everything, SORTS, of=everything, size=AGENTS)
    context = {"listing": found, "agents": agent_summaries(found.rows), "work": work_summary(actor)}
    return render(request, "agentcore_site/summary.html", context)
