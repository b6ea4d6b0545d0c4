"""One budget: what is spent and held, its limits over time, its ledger; and setting a limit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET

from agentcore_site.console.pages import Sort, allowed, listing, page, query_params, sent
from agentcore_site.lib.errors import Conflict, Invalid
from agentcore_site.lib.money_format import exact, money
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import current_organization, require
from budgets.exports import LedgerExport, ledger_csv, ledger_export_start
from budgets.forms import LimitForm, NewLimitForm, typed
from budgets.ledger.accounts import DEFAULT_JOB_LIMIT_MICROS, month_of, month_over
from budgets.models import Budget, EntryKind, LedgerEntry, Scope
from budgets.presenters.budget_verdict import forecast_of, spending_figure, verdict
from budgets.presenters.calls import FIRST_OF_CALL, paid_calls
from budgets.presenters.naming import agents, jobs_of, named
from budgets.selectors import budget_get, budgets_visible, entries_of, limits_visible
from budgets.services import ShownLimit, budget_change_limit, budget_set_limit, playground_set_limit
from budgets.views.query_params import one_of

SORTS = (Sort("newest", "newest first", "at"), Sort("oldest", "oldest first", "at", descending=False))


@page
def budget(request: HttpRequest, actor: Actor, budget_id: int) -> HttpResponse:
    """The page; a POST sets the limit."""
    one = budget_get(actor, budget_id)
    if request.method != "POST":
        return _budget_page(request, actor, one, None)
    require(actor, "budget.edit", one.organization_id)
    form = LimitForm(request.POST)
    if form.is_valid():
        try:
            values = form.cleaned_data
            shown = ShownLimit(values["shown"]) if "shown" in form.data else None
            changed = budget_change_limit(actor, one, values["limit"], note=values["note"], shown=shown)
        except Conflict as error:
            if month_over(one):
                raise
            one = budget_get(actor, budget_id)
            form = LimitForm(
                request.POST.dict() | {"shown": typed(one.limit_micros)}
            )  # the message shows it: try again
            form.refuse(error)
        except Invalid as error:
            form.refuse(error)
        else:
            messages.success(request, _done(changed))
            return redirect("budgets:budget", budget_id=changed.id)
    return _budget_page(request, actor, one, form)


@require_GET
@page
def limit(request: HttpRequest, actor: Actor, budget_id: int) -> HttpResponse:
    """The form's button while a person types: what it would do, and what would be left then."""
    one = budget_get(actor, budget_id)
    require(actor, "budget.edit", one.organization_id)
    form = LimitForm(request.GET)
    means = _meant(one, form.cleaned_data["limit"]) if form.is_valid() else {}
    context = {"form": form, **means}
    return render(request, "budgets/_limit.html", context)


@page
def new(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The limit of an owner who may have no row in this month yet."""
    organization = current_organization(actor)
    require(actor, "budget.edit", organization)
    known = agents(actor).filter(organization=organization, archived_at=None).order_by("name")[:500]
    playground = (Scope.PLAYGROUND.value, "Playground")
    owners = [("", f"{organization}, in all"), playground, *((str(one.id), one.name) for one in known)]
    agent, scope = query_params(request, "agent", "scope")
    form = NewLimitForm(sent(request), owners=owners, initial={"owner": agent or scope})
    of_playground = form.data.get("owner") == Scope.PLAYGROUND
    service = playground_set_limit if of_playground else budget_set_limit
    if changed := form.applied(service, actor, organization=organization):
        messages.success(request, _done(changed))
        return redirect("budgets:budget", budget_id=changed.id)
    return render(request, "budgets/new.html", {"form": form}, status=form.status)


@require_GET
@page
def ledger(request: HttpRequest, actor: Actor, budget_id: int) -> HttpResponseBase:
    """The ledger as CSV, with the page's filters, streamed."""
    one = budget_get(actor, budget_id)
    # An export is of one organisation; a person of several means the one whose budget this is.
    there = replace(actor, organization_id=one.organization_id)
    ledger_export_start(there, job=one.job)  # asks and logs; what it would export is wider than what is asked for
    rows, _ = _entries(request, there, one)
    response = StreamingHttpResponse(ledger_csv(LedgerExport(rows)), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="ledger-{one.scope}-{one.id}.csv"'
    return response


# -- the page ----------------------------------------------------------------------------------------------------------


def _budget_page(request: HttpRequest, actor: Actor, budget: Budget, form: LimitForm | None) -> HttpResponse:
    may = allowed(actor, budget.organization_id)
    editable = "budget.edit" in may and not month_over(budget)
    if editable and form is None:
        form = LimitForm(initial={"limit": typed(budget.limit_micros), "shown": typed(budget.limit_micros)})
    forecast = forecast_of(budget)
    context = {
        "one": named(actor, [budget])[0],
        "budget": budget,
        "forecast": forecast,
        "verdict": verdict(budget, forecast),
        "over": month_over(budget),
        "unset": f"A job may spend {money(DEFAULT_JOB_LIMIT_MICROS)} unless its launch says otherwise."
        if budget.scope == Scope.JOB
        else "",
        "figure": spending_figure(budget, forecast),
        "months": _months(actor, budget),
        "limits": limits_visible(actor, budget)[:20],
        "may": may,
        "editable": editable,
        "form": form,
        **(_lines(request, actor, budget) if "data.view" in may else {}),
    }
    return render(request, "budgets/budget.html", context, status=form.status if form else 200)


def _lines(request: HttpRequest, actor: Actor, budget: Budget) -> dict[str, Any]:
    """The ledger, for who may read its lines."""
    rows, filters = _entries(request, actor, budget)
    # A kind is one of entries; without it the ledger is read by call.
    by_entry = one_of(request, "lines", ["entries"]) == "entries" or bool(filters["kind"])
    listed, one = (rows, "entry") if by_entry else (rows.filter(FIRST_OF_CALL), "call")
    found = listing(request, listed, SORTS, one=one)
    return {
        "listing": found,
        "calls": [] if by_entry else paid_calls(actor, found.rows, entries_of(actor, budget)),
        "lines": "entries" if by_entry else "",
        "jobs": jobs_of(actor, [row.job_id for row in found.rows]),
        "kinds": EntryKind.choices,
        "models": _models(found.rows, filters["model"]),
        **filters,
    }


def _entries(request: HttpRequest, actor: Actor, budget: Budget) -> tuple[QuerySet[LedgerEntry], dict[str, str]]:
    """The entries that the filters leave, and the filters."""
    kind = one_of(request, "kind", EntryKind.values)
    model, purpose = query_params(request, "model", "purpose")
    filters = {"kind": kind, "model": model, "purpose": purpose}
    given = {name: value for name, value in filters.items() if value}
    return entries_of(actor, budget).filter(**given), filters


def _models(rows: list[LedgerEntry], chosen: str) -> list[str]:
    """Chips for the models on this page: to look for all of them would read the whole ledger."""
    return sorted({*(row.model for row in rows if row.model), *([chosen] if chosen else [])})


def _months(actor: Actor, budget: Budget) -> QuerySet[Budget] | list[Budget]:
    """The owner's rows of other months, newest first."""
    if budget.scope == Scope.JOB:
        return []
    rows = budgets_visible(actor).filter(owner_id=budget.owner_id, organization_id=budget.organization_id)
    return rows.order_by("-period_start")[:12]


def _meant(budget: Budget, limit_micros: int | None) -> dict[str, Any]:
    """The effect of setting this limit, for the button and the line under it."""
    used_micros = budget.spent_micros + budget.reserved_micros
    if limit_micros is None:
        return {"action": "Remove the limit", "effect": "Spending would have no limit."}
    action = f"Set the limit to {money(limit_micros)}"
    if limit_micros < used_micros:
        return {
            "action": action,
            "effect": "",
            "short": f"{exact(used_micros)} is spent or on hold: choose at least that.",
        }
    left_micros = max(0, limit_micros - used_micros - budget.debt_micros)
    until = " in all" if budget.scope == Scope.JOB else f" until the end of {month_of():%B}"
    return {"action": action, "effect": f"{money(left_micros)} would be left{until}."}


def _done(budget: Budget) -> str:
    return (
        "The limit was removed." if budget.limit_micros is None else f"The limit is {money(budget.limit_micros)} now."
    )
