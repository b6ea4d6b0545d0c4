"""The audit log, for admins."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from typing import Any, Final

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET

from agentcore_site.audit.action_texts import action_words
from agentcore_site.audit.models import AuditEvent
from agentcore_site.audit_export.exports import FILE, MEDIA, audit_export_start, audit_jsonl, audit_visible
from agentcore_site.audit_export.filters import FAMILIES, AuditEventFilters
from agentcore_site.audit_export.forms import AuditStreamForm
from agentcore_site.audit_export.models import AuditStream
from agentcore_site.audit_export.presenters import AuditEventOut
from agentcore_site.audit_export.sending import lines_waiting, stream_secret
from agentcore_site.audit_export.services import (
    stream_get,
    stream_pause,
    stream_remove,
    stream_renew_secret,
    stream_restart,
    stream_set,
    stream_test,
)
from agentcore_site.console.pages import COUNT_LIMIT, Sort, listing, page, post_page, query_params, sent
from agentcore_site.lib.errors import Conflict, Invalid
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.permissions import current_organization, require
from agentcore_site.views.audit_targets import targets

SORTS = (Sort("newest", "newest first", "at"), Sort("oldest", "oldest first", "at", descending=False))
# What a button of the webhook's page does, and what is said then.
STREAM_ACTS: Final[dict[str, tuple[Callable[[Actor, AuditStream], object], str]]] = {
    "test": (stream_test, "The webhook accepted the test."),
    "pause": (lambda actor, row: stream_pause(actor, row, paused=True), "Paused. No line is lost in the meantime."),
    "resume": (lambda actor, row: stream_pause(actor, row, paused=False), "Sending continues."),
    "beginning": (
        lambda actor, row: stream_restart(actor, row, beginning=True),
        "Sending continues from the first line.",
    ),
    "now": (lambda actor, row: stream_restart(actor, row, beginning=False), "Sending continues with new lines."),
    "secret": (stream_renew_secret, ""),
    "remove": (stream_remove, "The audit log is no longer sent."),
}


@page
def audit(request: HttpRequest, actor: Actor) -> HttpResponse:
    everything = audit_visible(actor)
    rows = AuditEventFilters.on_page(everything, _filters(request))
    found = listing(request, rows, SORTS, one="entry", of=everything, size=50, columns=AuditEventOut)
    family, since, until = query_params(request, "about", "since", "until")
    context = {
        "listing": found,
        "lines": _lines(actor, found.rows),
        "family": family,
        "families": FAMILIES.items(),
        "since": since,
        "until": until,
    }
    return render(request, "agentcore_site/audit.html", context)


def _lines(actor: Actor, events: list[AuditEvent]) -> list[dict[str, Any]]:
    """Each event with what was done in words, and where it leads."""
    led = targets(actor, events)
    return [{"event": event, "words": action_words(event.action), "url": led.get(event.pk, "")} for event in events]


@require_GET
@page
def export(request: HttpRequest, actor: Actor) -> StreamingHttpResponse:
    """The log as JSONL, with the page's filters, streamed."""
    lines = audit_jsonl(audit_export_start(actor, _filters(request)))
    return StreamingHttpResponse(lines, content_type=MEDIA, headers={"Content-Disposition": FILE})


@page
def stream(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Destination of the log, and its progress."""
    organization = current_organization(actor)
    require(actor, "audit.stream", organization)
    row = _stream(organization)
    form = AuditStreamForm.of(row, sent(request))
    if made := form.applied(stream_set, actor, organization):
        messages.success(request, "Saved.")
        return redirect("audit_stream") if row is not None else _secret_shown(request, organization, made)
    return _stream_shown(request, organization, form=form)


@post_page
def stream_act(request: HttpRequest, actor: Actor, action: str) -> HttpResponse:
    organization = current_organization(actor)
    row, (act, message) = stream_get(actor, organization), STREAM_ACTS[action]
    try:
        act(actor, row)
    except Conflict as error:
        messages.error(request, error.message)
        return redirect("audit_stream")
    if not message:
        return _secret_shown(request, organization, row)
    messages.success(request, message)
    return redirect("audit_stream")


def _secret_shown(request: HttpRequest, organization: Organization, row: AuditStream) -> HttpResponse:
    """The one page that shows it: a new secret is in no message and no cookie."""
    response = _stream_shown(request, organization, secret=stream_secret(row.pk, row.secret_version))
    response["Cache-Control"] = "no-store, private"
    return response


def _stream(organization: Organization) -> AuditStream | None:
    return AuditStream.objects.filter(organization=organization).first()


def _stream_shown(
    request: HttpRequest, organization: Organization, *, form: AuditStreamForm | None = None, **context: Any
) -> HttpResponse:
    row = _stream(organization)
    form = form or AuditStreamForm.of(row)
    waiting = lines_waiting(row, COUNT_LIMIT + 1) if row is not None else 0
    actions = [
        ("audit_stream_test", "Send a test"),
        ("audit_stream_resume", "Resume") if row is not None and row.paused else ("audit_stream_pause", "Pause"),
        ("audit_stream_beginning", "Start from the beginning"),
        ("audit_stream_now", "Start from now"),
        ("audit_stream_secret", "New signing secret"),
        ("audit_stream_remove", "Remove"),
    ]
    context |= {"row": row, "form": form, "waiting": waiting, "limit": COUNT_LIMIT, "actions": actions}
    return render(request, "agentcore_site/audit_stream.html", context, status=form.status)


def _filters(request: HttpRequest) -> dict[str, str]:
    query, family = query_params(request, "q", "about")
    since, until = _day(request, "since"), _day(request, "until")
    filters = {
        "search": query,
        "about": family,
        "since": f"{since}T00:00:00Z" if since else "",
        "until": f"{until + timedelta(days=1)}T00:00:00Z" if until else "",
    }
    return {name: value for name, value in filters.items() if value}


def _day(request: HttpRequest, name: str) -> date | None:
    """Raises:
    Invalid: it is no date."""
    [text] = query_params(request, name)
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        raise Invalid(f"{name} is {text[:20]!r}; write a day as 2026-11-24.") from None
