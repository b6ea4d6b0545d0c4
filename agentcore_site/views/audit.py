"""The audit log, for admins."""

from __future__ import annotations

from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from agentcore_site.audit.models import AuditEvent
from agentcore_site.console.pages import Sort, asked, listing, matching, page
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
    query, family = asked(request, "q", "about")
    of_family = everything.filter(action__startswith=f"{family}.") if family in FAMILIES else everything
    itself = Q(target_id=query) | Q(request_id=query)
    rows = matching(of_family, query, "actor", "target", "action", also=itself)
    found = listing(request, rows, SORTS, one="entry", of=everything, size=50)
    return render(request, "agentcore_site/audit.html", {"listing": found, "family": family, "families": FAMILIES})
