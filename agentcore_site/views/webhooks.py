"""Webhooks of an organisation, for those who may edit them, and of a person, for that person."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone

from agentcore_site.console.pages import Sort, listing, matching, page, post_page, query_params, sent
from agentcore_site.lib.errors import Conflict
from agentcore_site.notices.models import WebhookEndpoint
from agentcore_site.notices.selectors import (
    deliveries_of,
    delivery_get,
    endpoint_get,
    endpoints_of_organizations,
    with_figures,
)
from agentcore_site.notices.services import (
    delivery_again,
    endpoint_create,
    endpoint_remove,
    endpoint_rotate,
    endpoint_test,
    endpoint_update,
)
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import current_organization, require
from agentcore_site.views.notice_forms import WebhookForm

SORTS = (Sort("newest", "newest first", "created_at"), Sort("name", "name", "name", descending=False))
LOG_SORTS = (Sort("newest", "newest first", "created_at"),)
SHOWS = ("waiting", "delivered", "failed")


@page
def webhooks(request: HttpRequest, actor: Actor) -> HttpResponse:
    everything = endpoints_of_organizations(actor)
    rows = matching(with_figures(everything), *query_params(request, "q"), "name", "url")
    found = listing(request, rows, SORTS, one="webhook", of=everything)
    return render(request, "notices/webhooks.html", {"listing": found})


@page
def webhook_new(request: HttpRequest, actor: Actor) -> HttpResponse:
    """A new one: the organisation's, or with ``?own=1`` the person's."""
    own = request.GET.get("own") == "1"
    organization = current_organization(actor)
    require(actor, "view" if own else "webhook.edit", organization)
    form = WebhookForm.of(None, sent(request))
    if made := form.applied(endpoint_create, actor, organization, own=own):
        return _webhook_page(request, made.endpoint, secret=made.secret, notice="Webhook created. Send a test now.")
    return render(request, "notices/webhook_new.html", {"form": form, "own": own}, status=form.status)


@page
def webhook(request: HttpRequest, actor: Actor, webhook_id: UUID) -> HttpResponse:
    row = endpoint_get(actor, webhook_id)
    form = WebhookForm.of(row, sent(request))
    if form.applied(endpoint_update, actor, row):
        messages.success(request, "Saved.")
        return redirect("webhook", row.pk)
    return _webhook_page(request, row, form=form)


@post_page
def webhook_test(request: HttpRequest, actor: Actor, webhook_id: UUID) -> HttpResponse:
    row = endpoint_get(actor, webhook_id)
    done = endpoint_test(actor, row)
    if done.problem:
        messages.error(request, f"The webhook did not accept the test: {done.problem}")
    else:
        messages.success(request, f"The webhook accepted the test in {done.duration_ms} ms.")
    return redirect("webhook", row.pk)


@post_page
def webhook_switch(request: HttpRequest, actor: Actor, webhook_id: UUID, on: bool) -> HttpResponse:
    row = endpoint_update(actor, endpoint_get(actor, webhook_id), on=on)
    messages.success(
        request, "The webhook is on: waiting events are sent now." if on else "The webhook is off: nothing is sent."
    )
    return redirect("webhook", row.pk)


@post_page
def webhook_secret(request: HttpRequest, actor: Actor, webhook_id: UUID) -> HttpResponse:
    row = endpoint_get(actor, webhook_id)
    try:
        made = endpoint_rotate(actor, row)
    except Conflict as error:
        messages.error(request, error.message)
        return redirect("webhook", row.pk)
    return _webhook_page(request, made.endpoint, secret=made.secret)


@post_page
def webhook_remove(request: HttpRequest, actor: Actor, webhook_id: UUID) -> HttpResponse:
    row = endpoint_get(actor, webhook_id)
    endpoint_remove(actor, row)
    messages.success(request, f"“{row}” was removed.")
    return redirect("notice_settings" if row.user_id else "webhooks")


@post_page
def webhook_again(request: HttpRequest, actor: Actor, delivery_id: UUID) -> HttpResponse:
    row = delivery_get(actor, delivery_id)
    try:
        delivery_again(actor, row)
        messages.success(request, "The event is sent again within seconds, with the same id.")
    except Conflict as error:
        messages.error(request, error.message)
    return redirect("webhook", row.endpoint_id)


def _webhook_page(
    request: HttpRequest,
    row: WebhookEndpoint,
    *,
    form: WebhookForm | None = None,
    secret: str = "",
    notice: str = "",
) -> HttpResponse:
    """Its page. A secret is shown on the answer that made it, and is in no message and no cookie."""
    form = form or WebhookForm.of(row)
    # The page of a secret is the answer to a POST: its address has no list to search or to turn the pages of.
    everything = deliveries_of(row).none() if secret else deliveries_of(row)
    query, show = query_params(request, "q", "show")
    rows = matching(everything, query, "event__type", "event__text")
    match show:
        case "waiting":
            rows = rows.filter(taken_at=None, given_up_at=None)
        case "delivered":
            rows = rows.exclude(taken_at=None)
        case "failed":
            rows = rows.exclude(given_up_at=None)
        case _:
            show = ""
    context: dict[str, Any] = {
        "row": row,
        "form": form,
        "secret": secret,
        "notice": notice,
        "former": row.former_until if row.former_until and row.former_until > timezone.now() else None,
        "listing": listing(request, rows, LOG_SORTS, one="delivery", of=everything),
        "show": show,
        "shows": SHOWS,
    }
    response = render(request, "notices/webhook.html", context, status=form.status)
    if secret:
        response["Cache-Control"] = "no-store, private"
    return response
