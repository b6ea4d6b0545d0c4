"""Pages of events: dead letters, and who publishes."""

from __future__ import annotations

from typing import Any, Final

import orjson
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from agentcore_site.console.pages import Sort, allowed, listing, page, post_page, query_params, sent
from agentcore_site.console.tables import columns
from agentcore_site.jobs.models import Status
from agentcore_site.jobs.services import may_cancel
from agentcore_site.lib.errors import Invalid
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import current_organization, require
from budgets.models import Budget
from evaluation.events.filters import ALIVE, STATES, DeadLetterFilters, EventCredentialFilters, TrainingRequestFilters
from evaluation.events.forms import EventCredentialForm
from evaluation.events.job_kind import HANDED_OVER
from evaluation.events.models import DeadReason
from evaluation.events.presenters import DeadLetterOut, EventCredentialOut
from evaluation.events.selectors import (
    dead_letter_get,
    dead_letters_visible,
    event_credential_get,
    event_credentials_visible,
    publishing_since,
    waiting,
)
from evaluation.events.services import (
    dead_letter_dismiss,
    dead_letter_retry,
    event_credential_create,
    event_credential_revoke,
    publishing_set,
)
from evaluation.events.training import training_request_cancel, training_request_get, training_requests_visible
from experiences.models.agent_lookup import agents_visible

LETTER_SORTS: Final = (
    Sort("newest", "newest first", "created_at"),
    Sort("oldest", "oldest first", "created_at", descending=False),
    Sort("tried", "most tries", "tries"),
)
CREDENTIAL_SORTS: Final = (
    Sort("newest", "newest first", "created_at"),
    Sort("name", "name", "name", descending=False),
)
TRAINING_SORTS: Final = (
    Sort("newest", "newest first", "created_at"),
    Sort("cost", "highest cost", "cost_micros", former="dearest"),
    Sort("model", "model", "base_model", descending=False),
)
LETTER_ACTS: Final = {"retry": dead_letter_retry, "dismiss": dead_letter_dismiss}
TRAINING_COLUMNS = columns("training_job_id job_id mode status=job.status created_at=job.created_at")


@page
def dead_letters(request: HttpRequest, actor: Actor) -> HttpResponse:
    everything = dead_letters_visible(actor)
    query, reason, state = query_params(request, "q", "reason", "state")
    rows = DeadLetterFilters.on_page(everything, {"search": query, "reason": reason, "state": state})
    context = {
        "listing": listing(request, rows, LETTER_SORTS, one="dead letter", of=everything, columns=DeadLetterOut),
        "reason": reason,
        "reasons": [(one.value, one.value.replace("_", " ").capitalize()) for one in DeadReason],
        "state": state,
        "states": STATES,
        "may": allowed(actor, current_organization(actor).pk),
    }
    return render(request, "events/dead_letters.html", context)


@post_page
def dead_letter_act(request: HttpRequest, actor: Actor, letter_id: Any, action: str) -> HttpResponse:
    LETTER_ACTS[action](actor, dead_letter_get(actor, letter_id))
    return redirect("events:dead_letters")


@page
def trainings(request: HttpRequest, actor: Actor) -> HttpResponse:
    everything = training_requests_visible(actor)
    query, mode, status = query_params(request, "q", "mode", "status")
    rows = TrainingRequestFilters.on_page(everything, {"search": query, "mode": mode, "status": status})
    context = {
        "listing": listing(request, rows, TRAINING_SORTS, one="training", of=everything, columns=TRAINING_COLUMNS),
        "mode": mode,
        "modes": (("here", "here"), ("elsewhere", "elsewhere")),
        "status": status,
        "statuses": Status.choices,
    }
    return render(request, "events/trainings.html", context)


@page
def training(request: HttpRequest, actor: Actor, job_id: Any) -> HttpResponse:
    """A training elsewhere: what was asked, and what its service says."""
    row = training_request_get(actor, job_id)
    context = {
        "row": row,
        "report": row.report,
        "limit_micros": Budget.objects.filter(job_id=row.job_id).values_list("limit_micros", flat=True).first(),
        "handed_over": row.job.events.filter(type=HANDED_OVER).exists(),
        "asked": orjson.dumps(row.request, option=orjson.OPT_INDENT_2).decode(),
        "events": row.job.events.order_by("-seq")[:50],
        "may_cancel": row.job.active and may_cancel(actor, row.job),
    }
    return render(request, "events/training.html", context)


@post_page
def training_cancel(request: HttpRequest, actor: Actor, job_id: Any) -> HttpResponse:
    training_request_cancel(actor, training_request_get(actor, job_id))
    return redirect("events:training", job_id=job_id)


@page
def publishers(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The list, with the form of a new one; the answer to a POST shows its password, this once."""
    organization = current_organization(actor)
    if request.method == "POST":
        require(actor, "events.edit", organization)
    form = EventCredentialForm(sent(request), agents=agents_visible(actor))
    made = form.applied(event_credential_create, actor) if request.method == "POST" else None
    everything = event_credentials_visible(actor)
    query, state = query_params(request, "q", "state")
    rows = EventCredentialFilters.on_page(everything, {"search": query, "state": state})
    context = {
        "listing": listing(request, rows, CREDENTIAL_SORTS, one="publisher", of=everything, columns=EventCredentialOut),
        "state": state,
        "states": ALIVE,
        "form": form if made is None else EventCredentialForm(agents=agents_visible(actor)),
        "made": made,
        "publishing": publishing_since(actor, organization.pk),
        "waiting": waiting(organization.pk),
        "connected": bool(settings.NATS_URL),
        "organization": organization,
        "may": allowed(actor, organization.pk),
    }
    return render(request, "events/publishers.html", context, status=form.status)


@post_page
def publisher_revoke(request: HttpRequest, actor: Actor, credential_id: Any) -> HttpResponse:
    event_credential_revoke(actor, event_credential_get(actor, credential_id))
    return redirect("events:publishers")


@post_page
def publishing(request: HttpRequest, actor: Actor) -> HttpResponse:
    organization = current_organization(actor)
    require(actor, "events.edit", organization)
    wanted = request.POST.get("on", "")
    if wanted not in ("0", "1"):
        raise Invalid("Say whether events are published.", fields={"on": "It is 1 or 0."})
    production = request.POST.get("production", "")
    if production not in ("", "0", "1"):
        raise Invalid("Say whether answers in production are published.", fields={"production": "It is 1 or 0."})
    publishing_set(actor, organization, on=wanted == "1", production=production == "1" if production else None)
    return redirect("events:publishers")
