"""The audit log, for admins."""

from __future__ import annotations

from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from agentcore_site.audit.models import AuditEvent
from agentcore_site.console.pages import Sort, listing, page
from agentcore_site.lib.errors import Forbidden
from agentcore_site.tenancy.actors import Actor

SORTS = (Sort("newest", "newest first", "at"), Sort("oldest", "oldest first", "at", descending=False))
FAMILIES = ("run", "job", "evaluation", "agent", "dataset", "checkpoint", "api_key", "person")


@page
def audit(request: HttpRequest, actor: Actor) -> HttpResponse:
    readable = [one for one in actor.organization_ids if actor.may("audit.view", one)]
    if not readable:
        raise Forbidden("The audit log is for admins. Ask one of them.")
    everything = AuditEvent.objects.filter(organization_id__in=readable)
    query, family = request.GET.get("q", "").strip(), request.GET.get("about", "")
    rows = everything
    if family in FAMILIES:
        rows = rows.filter(action__startswith=f"{family}.")
    if query:
        rows = rows.filter(
            Q(actor__icontains=query)
            | Q(target__icontains=query)
            | Q(action__icontains=query)
            | Q(target_id=query)
            | Q(request_id=query)
        )
    context = {
        "listing": listing(request, rows, SORTS, size=50),
        "q": query,
        "family": family,
        "families": FAMILIES,
        "any": everything.exists(),
    }
    return render(request, "agentcore_site/audit.html", context)
