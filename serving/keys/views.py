"""Keys that call models through the gateway as people look at them: their limits, and what they spent."""

from __future__ import annotations

from typing import Final

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from agentcore_site.console.pages import Sort, asked, listing, page
from agentcore_site.tenancy.actors import Actor
from budgets.ledger.accounts import month_of
from budgets.views.query_params import month_asked
from serving.keys.filters import STATES, CallingKeyFilters
from serving.keys.selectors import calling_keys_visible, months_of

SORTS: Final = (
    Sort("dearest", "spent most", "spent"),
    Sort("busiest", "most calls", "calls"),
    Sort("newest", "newest first", "created_at"),
    Sort("name", "name", "name", descending=False),
)


@page
def keys(request: HttpRequest, actor: Actor) -> HttpResponse:
    month = month_asked(request, month_of())
    everything = calling_keys_visible(actor, month)
    query, state = asked(request, "q", "state")
    rows = CallingKeyFilters.on_page(everything, {"search": query, "state": state})
    context = {
        "listing": listing(request, rows, SORTS, one="key", of=everything),
        "month": month,
        "months": months_of(everything),
        "state": state,
        "states": STATES,
    }
    return render(request, "serving/keys.html", context)
