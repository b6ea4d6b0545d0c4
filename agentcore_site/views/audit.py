"""The audit log, for admins."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from agentcore_site.audit_export.exports import FILE, MEDIA, audit_export_start, audit_jsonl, audit_visible
from agentcore_site.audit_export.filters import FAMILIES, AuditEventFilters
from agentcore_site.console.pages import Sort, asked, listing, page
from agentcore_site.tenancy.actors import Actor

SORTS = (Sort("newest", "newest first", "at"), Sort("oldest", "oldest first", "at", descending=False))


@page
def audit(request: HttpRequest, actor: Actor) -> HttpResponse:
    everything = audit_visible(actor)
    rows = AuditEventFilters.on_page(everything, _filters(request))
    found = listing(request, rows, SORTS, one="entry", of=everything, size=50)
    [family] = asked(request, "about")
    return render(request, "agentcore_site/audit.html", {"listing": found, "family": family, "families": FAMILIES})


@require_GET
@page
def export(request: HttpRequest, actor: Actor) -> StreamingHttpResponse:
    """The log as JSONL, with the page's filters, streamed."""
    lines = audit_jsonl(audit_export_start(actor, _filters(request)))
    return StreamingHttpResponse(lines, content_type=MEDIA, headers={"Content-Disposition": FILE})


def _filters(request: HttpRequest) -> dict[str, str]:
    query, family = asked(request, "q", "about")
    return {name: value for name, value in {"search": query, "about": family}.items() if value}
