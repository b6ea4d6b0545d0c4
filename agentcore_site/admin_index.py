"""The first page of the Django admin: the ten models that people edit, each with the figures that they come for.

Each figure is one statement over the rows that the model's page shows to the person.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from django.contrib import admin
from django.db.models import Count, F, Q, QuerySet, Sum
from django.http import HttpRequest
from django.utils import timezone

from agentcore_site.jobs.models import ACTIVE, Status
from agentcore_site.lib.figures import counted
from agentcore_site.lib.money_format import money
from agentcore_site.tenancy.roles import Role
from agentcore_site.theme import edited_of
from budgets.ledger.accounts import month_of
from budgets.models import Scope

USED_LATELY: Final = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class IndexCard:
    """A model that people edit. ``figure``: its number; ``note``: a second number; ``share``: of a limit, 0 to 1."""

    name: str
    url: str
    add_url: str
    figure: str
    note: str
    share: float | None = None


def dashboard(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Adds ``cards`` to the context of the admin's index."""
    cards = []
    for model in edited_of(context["app_list"]):
        rows = admin.site._registry[model["model"]].get_queryset(request).order_by()
        figure, note, share = FIGURES[model["model"]._meta.label_lower](rows)
        cards.append(IndexCard(str(model["name"]), model["admin_url"], model.get("add_url") or "", figure, note, share))
    return context | {"cards": cards}


Figures = tuple[str, str, float | None]


def _of(rows: QuerySet[Any], note: str, **counts: Q | None) -> Figures:
    """``counts``: a condition for the figure (``n``), and one for each name in the ``note``."""
    found = rows.aggregate(**{name: Count("pk", filter=condition) for name, condition in counts.items()})
    return f"{found['n']:,}", note.format(**{name: f"{value:,}" for name, value in found.items()}), None


def _jobs(rows: QuerySet[Any]) -> Figures:
    found = rows.filter(status__in=ACTIVE).values_list("status").annotate(n=Count("pk"))
    by_status = dict(found)
    queued, paused = (by_status.get(status, 0) for status in (Status.QUEUED, Status.PAUSED))
    return f"{by_status.get(Status.RUNNING, 0):,} running", f"{queued:,} queued, {paused:,} paused", None


def _budgets(rows: QuerySet[Any]) -> Figures:
    """Of the organisations' budgets of this month. The limit is that of all of them, where each has one."""
    found = rows.filter(period_start=month_of()).aggregate(
        spent=Sum(F("spent_micros") + F("debt_micros"), filter=Q(scope=Scope.ORGANIZATION)),
        limit=Sum("limit_micros", filter=Q(scope=Scope.ORGANIZATION)),
        unlimited=Count("pk", filter=Q(scope=Scope.ORGANIZATION, limit_micros=None)),
        used_up=Count("pk", filter=Q(limit_micros__lte=F("spent_micros") + F("reserved_micros") + F("debt_micros"))),
    )
    spent_micros, limit_micros = int(found["spent"] or 0), int(found["limit"] or 0)
    limited = found["limit"] is not None and not found["unlimited"]
    figure = f"{money(spent_micros)} of {money(limit_micros)}" if limited else money(spent_micros)
    note = "spent this month" if limited else "spent this month, not limited"
    if found["used_up"]:
        note += f"; {counted(found['used_up'], 'budget')} used up"
    return figure, note, min(1.0, spent_micros / limit_micros) if limited and limit_micros else None


def _prices(rows: QuerySet[Any]) -> Figures:
    today = timezone.now().date()
    found = rows.aggregate(
        n=Count("model", distinct=True, filter=Q(valid_from__lte=today)),
        free=Count("model", distinct=True, filter=Q(valid_from__lte=today, free=True)),
    )
    return f"{found['n']:,}", f"models with a price, {found['free']:,} of them free", None


def _keys(rows: QuerySet[Any]) -> Figures:
    now = timezone.now()
    valid = Q(revoked_at=None, expires_at__gt=now)
    return _of(rows, "valid, {used} used in 30 days", n=valid, used=valid & Q(last_used_at__gt=now - USED_LATELY))


def _archived(rows: QuerySet[Any]) -> Figures:
    return _of(rows, "in use, {archived} archived", n=Q(archived_at=None), archived=Q(archived_at__isnull=False))


# The order of the page. The keys are the labels of ``theme.EDITED``.
FIGURES: Final[dict[str, Callable[[QuerySet[Any]], Figures]]] = {
    "budgets.budget": _budgets,
    "jobs.job": _jobs,
    "experiences.agent": _archived,
    "experiences.modelendpoint": _archived,
    "budgets.modelprice": _prices,
    "tenancy.membership": lambda rows: _of(rows, "members, {admins} of them admins", n=None, admins=Q(role=Role.ADMIN)),
    "tenancy.invitation": lambda rows: _of(
        rows,
        "open, {late} expired without an answer",
        n=Q(outcome="", expires_at__gt=timezone.now()),
        late=Q(outcome="", expires_at__lte=timezone.now()) | Q(outcome="expired"),
    ),
    "tenancy.apikey": _keys,
    "notices.webhookendpoint": lambda rows: _of(
        rows, "on, {failing} of them failing", n=Q(on=True), failing=Q(on=True, failing_since__isnull=False)
    ),
    "tenancy.organization": lambda rows: _of(
        rows, "{new} of them created in 30 days", n=None, new=Q(created_at__gt=timezone.now() - USED_LATELY)
    ),
}
