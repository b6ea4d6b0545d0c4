"""The search of the top bar as a page, and as the palette that Ctrl K opens."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from agentcore_site.console.pages import allowed, page, query_params
from agentcore_site.search import places_found, things_found
from agentcore_site.tenancy.actors import Actor


@page
def search(request: HttpRequest, actor: Actor) -> HttpResponse:
    [query] = query_params(request, "q")
    return render(request, "agentcore_site/search.html", {"q": query, "groups": things_found(actor, query)})


@page
def palette(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Matches of the query, places and actions first: a part of every page."""
    [query] = query_params(request, "q")
    membership = next(iter(actor.memberships.values()), None)
    may = allowed(actor, membership.organization_id) if membership else frozenset[str]()
    groups = [*places_found(query, may, staff=bool(request.user.is_staff)), *things_found(actor, query)]
    return render(request, "agentcore_site/_palette.html", {"q": query, "groups": groups})
