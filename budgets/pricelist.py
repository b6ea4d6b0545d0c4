"""The price table as people read it: what is in force today, what was before, what is set for later."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

from django.db.models import Case, IntegerField, Q, QuerySet, Value, When

from budgets.models import ModelPrice
from budgets.selectors import prices_visible
from budgets.showing import money

OWN_FIRST = Case(When(organization=None, then=Value(1)), default=Value(0), output_field=IntegerField())


def prices_of(actor: Any, organization_id: UUID) -> QuerySet[ModelPrice]:
    """The prices for all, and those of this one organisation."""
    return prices_visible(actor).filter(Q(organization=None) | Q(organization_id=organization_id))


def prices_in_force(actor: Any, organization_id: UUID, *, today: date | None = None) -> QuerySet[ModelPrice]:
    """One row per model, as ``DatabasePriceBook`` chooses: the organisation's own first, then the newest valid one."""
    day = today or datetime.now(UTC).date()
    valid = prices_of(actor, organization_id).filter(valid_from__lte=day)
    chosen = valid.order_by("model", OWN_FIRST, "-valid_from", "-id").distinct("model").values("id")
    return ModelPrice.objects.filter(id__in=chosen)


def price_history(actor: Any, organization_id: UUID, model: str) -> QuerySet[ModelPrice]:
    """Every price of a model, future ones too, newest first; of one day the organisation's own first."""
    return prices_of(actor, organization_id).filter(model=model).order_by("-valid_from", OWN_FIRST, "-id")


@dataclass(frozen=True, slots=True)
class PriceLine:
    """A price in dollars to the last digit: a price that is rounded is another price. "": as the prompt, or none."""

    row: ModelPrice
    input: str
    cached_input: str
    output: str
    per_call: str


def price_lines(rows: Iterable[ModelPrice]) -> list[PriceLine]:
    return [
        PriceLine(
            row,
            money(row.input),
            "" if row.cached_input is None else money(row.cached_input),
            money(row.output),
            money(row.per_call) if row.per_call else "",
        )
        for row in rows
    ]
