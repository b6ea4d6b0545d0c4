"""Pages of programs' keys: list with rights and spending, creation, and revocation."""

from __future__ import annotations

from typing import Any, Final

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from agentcore_site.console.pages import Sort, listing, page, post_page, query_params, sent
from agentcore_site.lib.links import absolute
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import current_organization
from agentcore_site.tenancy.services import api_key_create, api_key_revoke
from budgets.ledger.accounts import month_of
from budgets.views.query_params import month_asked
from evaluation.serving.keys.filters import STATES, CallingKeyFilters
from evaluation.serving.keys.forms import KeyForm
from evaluation.serving.keys.presenters import KeySpendingOut
from evaluation.serving.keys.selectors import key_get, keys_visible, months_of

SORTS: Final = (
    Sort("newest", "newest first", "created_at"),
    Sort("spent", "spent most", "spent_micros", former="dearest"),
    Sort("busiest", "most calls", "calls"),
    Sort("name", "name", "name", descending=False),
)


@page
def keys(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The list, with the form of a new one; the answer to a POST shows the key itself, this once."""
    organization = current_organization(actor)
    form = KeyForm(sent(request), actor=actor, organization=organization)
    made = form.applied(api_key_create, actor, organization=organization) if request.method == "POST" else None
    month = month_asked(request, month_of())
    everything = keys_visible(actor, month)
    query, state = query_params(request, "q", "state")
    rows = CallingKeyFilters.on_page(everything, {"search": query, "state": state})
    context = {
        "listing": listing(request, rows, SORTS, one="key", of=everything, columns=KeySpendingOut),
        "month": month,
        "months": months_of(everything),
        "state": state,
        "states": STATES,
        "form": form if made is None else KeyForm(actor=actor, organization=organization),
        "made": made,
        "me": absolute(request, reverse("api:me")),
    }
    response = render(request, "serving/keys.html", context, status=form.status)
    if made is not None:
        response["Cache-Control"] = "no-store, private"
    return response


@post_page
def revoke(request: HttpRequest, actor: Actor, key_id: Any) -> HttpResponse:
    row = key_get(actor, key_id)
    api_key_revoke(actor, row)
    messages.success(request, f"{row.name} opens nothing any more.")
    return redirect("serving:keys")
