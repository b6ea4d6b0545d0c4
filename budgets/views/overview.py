"""An organisation's spending: the verdict, the burn-down, every budget of a month, and what the money went for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from django.db.models import Case, CharField, Count, F, FloatField, Q, QuerySet, Sum, Value, When
from django.db.models.functions import Cast
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from agentcore_site.console.pages import Sort, listing, page, query_params
from agentcore_site.console.tables import is_table
from agentcore_site.lib.money import MICROS
from agentcore_site.lib.months import month_after
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.permissions import current_organization, require
from budgets import exports
from budgets.alerts.delivery import subject
from budgets.forms import RangeForm
from budgets.ledger.accounts import BudgetOwner, limit_standing_micros, month_of
from budgets.models import AlertKind, Budget, Scope
from budgets.presenters.budget_verdict import forecast_of, nothing_yet, spending_figure, verdict
from budgets.presenters.naming import agent_names, agents_called, jobs_of, named
from budgets.presenters.shapes import BudgetOut
from budgets.selectors import BY, Spending, alerts_visible, breakdown, budgets_visible
from budgets.views.query_params import month_asked, one_of

SORTS = (
    Sort("used", "most used first", "used"),
    Sort("spent", "most spent first", "spent_micros"),
    Sort("newest", "newest first", "created_at"),
)
SHOWN = 100
TABS = (("model", "Model"), ("agent", "Agent"), ("job", "Job"), ("purpose", "Purpose"), ("day", "Day"))


@dataclass(frozen=True, slots=True)
class BreakdownRow:
    """A row of the breakdown. ``share`` of the whole; ``job`` and ``agent_id`` lead to what it is of."""

    spending: Spending
    name: str
    share: float
    job: Any = None
    agent_id: Any = None
    day: date | None = None


@page
def overview(request: HttpRequest, actor: Actor) -> HttpResponse:
    organization = current_organization(actor)
    require(actor, "budget.view", organization)
    month = month_asked(request, month_of())
    everything = budgets_visible(actor, month=month).filter(organization=organization)
    [query], scope = query_params(request, "q"), one_of(request, "scope", Scope.values)
    rows = _filtered(actor, everything, query, scope)
    [small] = query_params(request, "small")
    folded = rows.none() if query or scope or small == "shown" or is_table(request) else rows.filter(SMALL)
    rows = rows.exclude(pk__in=folded.values("pk")).annotate(used=USED)
    found = listing(request, rows, SORTS, one="budget", of=everything, columns=BudgetOut)
    context = {
        **_head(organization, month),
        **_alerts(actor, organization, month),
        **_spending(request, actor, organization, month),
        "listing": found,
        "rows": named(actor, found.rows),
        "folded": folded.order_by().aggregate(n=Count("pk"), spent_micros=Sum("spent_micros")),
        "small": small,
        "scope": scope,
        "scopes": Scope.choices,
        "month": month,
        "months": _months(organization, month),
    }
    return render(request, "budgets/budgets.html", context)


@page
def breakdown_csv(request: HttpRequest, actor: Actor) -> HttpResponse:
    organization = current_organization(actor)
    require(actor, "budget.view", organization)
    by = one_of(request, "by", BY, "model")
    since, until, _ = _range(request, month_of())
    rows = breakdown(actor, by=by, since=since, until=until, organization_id=organization.id)
    response = HttpResponse(exports.breakdown_csv(by, rows), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="spending-by-{by}-{since}-{until}.csv"'
    return response


# Jobs that spend by themselves, a little each, and need no decision: evolutions under a dollar, with room left.
SMALL = Q(scope=Scope.JOB, job__kind="evolution", debt_micros=0, spent_micros__lt=MICROS, reserved_micros=0) & (
    Q(limit_micros=None) | Q(spent_micros__lt=F("limit_micros") * 3 / 4)
)
# A limit of nothing counts as used up; without one a budget comes last.
USED = Case(
    When(limit_micros=None, then=Value(-1.0)),
    When(limit_micros=0, then=Value(1.0)),
    default=Cast(F("spent_micros") + F("debt_micros"), FloatField()) / Cast(F("limit_micros"), FloatField()),
    output_field=FloatField(),
)


def _head(organization: Organization, month: date) -> dict[str, Any]:
    own = Budget.objects.filter(owner_id=organization.id, organization=organization, period_start=month)
    budget = own.select_related("organization").first()
    if budget is None:
        limit_micros = limit_standing_micros(BudgetOwner(organization.id, Scope.ORGANIZATION, organization.id))
        return {"own": None, "verdict": nothing_yet(limit_micros), "standing": limit_micros}
    forecast = forecast_of(budget)
    return {
        "own": budget,
        "forecast": forecast,
        "verdict": verdict(budget, forecast),
        "figure": spending_figure(budget, forecast),
    }


def _alerts(actor: Actor, organization: Organization, month: date) -> dict[str, Any]:
    rows = alerts_visible(actor).filter(
        budget__organization=organization, created_at__date__gte=month, created_at__date__lt=month_after(month)
    )
    rows = rows.exclude(kind=AlertKind.ABOVE_HOLD, excess_micros__lt=MICROS // 100)  # less than a cent asks for no work
    shown = list(rows[:20])
    names = named(actor, [alert.budget for alert in shown])
    return {"alerts": [{"alert": one, "text": subject(one, of.name)} for one, of in zip(shown, names, strict=True)]}


def _months(organization: Organization, month: date) -> list[date]:
    """The latest months that have budgets, newest first, with the one that is shown and the running one."""
    rows = Budget.objects.filter(organization=organization).exclude(scope=Scope.JOB)
    known = rows.order_by("-period_start").values_list("period_start", flat=True).distinct()[:6]
    return sorted({*known, month, month_of()}, reverse=True)


def _filtered(actor: Actor, rows: QuerySet[Budget], query: str, scope: str) -> QuerySet[Budget]:
    if scope:
        rows = rows.filter(scope=scope)
    if query:
        rows = rows.annotate(key=Cast("owner_id", CharField())).filter(
            Q(scope=Scope.JOB, job__title__icontains=query)
            | Q(scope=Scope.ORGANIZATION, organization__name__icontains=query)
            | (Q(scope=Scope.PLAYGROUND) if query.lower() in Scope.PLAYGROUND.value else Q(pk=None))
            | Q(agent_id__in=agents_called(actor, query))
            | Q(key__endswith=query.lower())
        )
    return rows


# -- what it went for --------------------------------------------------------------------------------------------------


def _range(request: HttpRequest, month: date) -> tuple[date, date, RangeForm]:
    """The days that are asked for, both included: the month unless they are given, or where they are wrong."""
    form = RangeForm(request.GET)
    right = form.is_valid()
    until = form.cleaned_data.get("until") if right else None
    since = form.cleaned_data.get("since") if right else None
    since = since or min(month, (until or month).replace(day=1))
    return since, until or max(since, month_after(month) - timedelta(days=1)), form


def _spending(request: HttpRequest, actor: Actor, organization: Organization, month: date) -> dict[str, Any]:
    by = one_of(request, "by", BY, "model")
    since, until, form = _range(request, month)
    rows = breakdown(actor, by=by, since=since, until=until, organization_id=organization.id)
    total_micros = sum(row.cost_micros for row in rows)
    return {
        "by": by,
        "tabs": TABS,
        "since": since,
        "until": until,
        "range": form,
        "total_micros": total_micros,
        "calls": sum(row.calls for row in rows),
        "lines": _lines(actor, by, rows[:SHOWN], total_micros),
        "more": max(0, len(rows) - SHOWN),
    }


def _lines(actor: Actor, by: str, rows: list[Spending], total_micros: int) -> list[BreakdownRow]:
    keys = [row.key for row in rows]
    jobs = jobs_of(actor, keys) if by == "job" else {}
    agents = agent_names(actor, keys) if by == "agent" else {}
    return [
        BreakdownRow(
            row,
            _name(by, row.key, jobs, agents),
            row.cost_micros / total_micros if total_micros else 0.0,
            job=jobs.get(row.key),
            agent_id=row.key if by == "agent" else None,
            day=row.key if by == "day" else None,
        )
        for row in rows
    ]


def _name(by: str, key: Any, jobs: dict[Any, Any], agents: dict[Any, str]) -> str:
    if not key:
        return f"no {by}"
    if by == "job":
        return str(jobs[key]) if key in jobs else f"job {str(key)[-6:]}"
    if by == "agent":
        return agents[key]
    return f"{key:%-d %b %Y}" if by == "day" else str(key)
