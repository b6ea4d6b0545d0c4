"""One page for those who only watch: what each agent gained, what it costs, and what is live."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from agentcore_site.console.pages import page
from agentcore_site.summaries import agent_summaries
from agentcore_site.tenancy.actors import Actor


@page
def summary(request: HttpRequest, actor: Actor) -> HttpResponse:
    return render(request, "agentcore_site/summary.html", {"agents": agent_summaries(actor)})
