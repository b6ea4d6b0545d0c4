"""Prices of models: the table in force, one model's prices over time, and an organisation's own."""

from __future__ import annotations

from datetime import UTC, datetime

from django.contrib import messages
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode

from agentcore_site.console.pages import Sort, listing, matching, page, query_params, side_panel
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.permissions import current_organization, require
from budgets.forms import PriceForm
from budgets.presenters.price_list import list_age, price_history, price_lines, prices_in_force
from budgets.presenters.shapes import PriceOut
from budgets.services import price_set
from budgets.views.query_params import one_of

SORTS = (
    Sort("model", "model", "model", descending=False),
    Sort("input", "most expensive prompt first", "input_micros"),
    Sort("output", "most expensive answer first", "output_micros"),
    Sort("newest", "newest first", "valid_from"),
)
WHOSE = (("own", "Your own"), ("all", "For all"), ("free", "Free"))


@page
def prices(request: HttpRequest, actor: Actor) -> HttpResponse:
    organization = current_organization(actor)
    require(actor, "budget.view", organization)
    everything = prices_in_force(actor, organization.id)
    whose = one_of(request, "whose", dict(WHOSE))
    rows = matching(everything, *query_params(request, "q"), "model")
    if whose:
        rows = rows.filter(of_whom(whose, organization))
    found = listing(request, rows, SORTS, one="model", of=everything, size=50, columns=PriceOut)
    context = {
        "listing": found,
        "rows": price_lines(found.rows),
        "whose": whose,
        "all_whose": WHOSE,
        "age": list_age(),
        "today": datetime.now(UTC).date(),
        **side_panel(
            request,
            "budgets/_price.html",
            lambda model: {"model": model, "history": price_lines(price_history(actor, organization.id, model)[:50])},
        ),
    }
    return render(request, "budgets/prices.html", context)


@page
def set_price(request: HttpRequest, actor: Actor) -> HttpResponse:
    """An organisation's own price; begins with the one in force for ``?model=``."""
    organization = current_organization(actor)
    require(actor, "price.edit", organization)
    [model] = query_params(request, "model")
    now = prices_in_force(actor, organization.id).filter(model=model).first() if model else None
    form = (
        PriceForm(request.POST, shown=now.model if now else "")
        if request.method == "POST"
        else PriceForm.of(now, model)
    )
    if price := form.applied(price_set, actor, organization=organization):
        messages.success(request, f"{price.model} is {'free' if price.free else 'priced'} from {price.valid_from} on.")
        return redirect(f"{reverse('budgets:prices')}?{urlencode({'panel': price.model})}")
    return render(request, "budgets/price_form.html", {"form": form}, status=form.status)


def of_whom(whose: str, organization: Organization) -> Q:
    """The rows of a chip: "own", "all" or "free"."""
    return {"own": Q(organization=organization), "all": Q(organization=None), "free": Q(free=True)}[whose]
