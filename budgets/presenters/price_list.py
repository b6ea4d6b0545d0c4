"""The price table as people read it: what is in force today, what was before, what is set for later."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db.models import Case, IntegerField, Q, QuerySet, Value, When

from agentcore_site.audit.models import AuditEvent
from agentcore_site.lib.money_format import exact
from agentcore_site.tenancy.actors import Actor
from budgets.models import ModelPrice
from budgets.selectors import prices_visible

OLD: Final = timedelta(days=183)  # half a year: providers change their prices more often
KIND_NAMES: Final = {  # of the rates of a price, for people
    "cached_input_micros": "cached",
    "cache_write_micros": "cache write",
    "cache_write_1h_micros": "cache write for an hour",
    "audio_input_micros": "audio in",
    "image_input_micros": "image in",
    "reasoning_micros": "reasoning",
    "audio_output_micros": "audio out",
    "image_output_micros": "image out",
}
OWN_FIRST = Case(When(organization=None, then=Value(1)), default=Value(0), output_field=IntegerField())


def prices_of(actor: Actor, organization_id: UUID) -> QuerySet[ModelPrice]:
    """The prices for all, and those of this one organisation."""
    return prices_visible(actor).filter(Q(organization=None) | Q(organization_id=organization_id))


def prices_in_force(actor: Actor, organization_id: UUID, *, today: date | None = None) -> QuerySet[ModelPrice]:
    """One row per model, as ``DatabasePriceBook`` chooses: the organisation's own first, then the newest valid one."""
    day = today or datetime.now(UTC).date()
    valid = prices_of(actor, organization_id).filter(valid_from__lte=day)
    chosen = valid.order_by("model", OWN_FIRST, "-valid_from", "-id").distinct("model").values("id")
    return ModelPrice.objects.filter(id__in=chosen)


def price_history(actor: Actor, organization_id: UUID, model: str) -> QuerySet[ModelPrice]:
    """Every price of a model, future ones too, newest first; of one day the organisation's own first."""
    return prices_of(actor, organization_id).filter(model=model).order_by("-valid_from", OWN_FIRST, "-id")


@dataclass(frozen=True, slots=True)
class PriceLine:
    """A price in dollars to the last digit: a price that is rounded is another price. "": as the prompt, or none.
    ``kinds`` are prices of other kinds of tokens, ``tiers`` those of long prompts, each as a sentence."""

    row: ModelPrice
    input: str
    cached_input: str
    output: str
    per_call: str
    kinds: list[str]
    tiers: list[str]


def price_lines(rows: Iterable[ModelPrice]) -> list[PriceLine]:
    return [
        PriceLine(
            row,
            exact(row.input_micros),
            "" if row.cached_input_micros is None else exact(row.cached_input_micros),
            exact(row.output_micros),
            exact(row.per_call_micros) if row.per_call_micros else "",
            kind_words(row.rates),
            [_tier_words(tier) for tier in row.tiers],
        )
        for row in rows
    ]


def kind_words(rates: Mapping[str, int]) -> list[str]:
    """Prices of kinds of tokens: "cache write $1.56"."""
    return [f"{KIND_NAMES[kind]} {exact(rates[kind])}" for kind in KIND_NAMES if rates.get(kind) is not None]


def _tier_words(tier: Mapping[str, Any]) -> str:
    amounts = [f"{exact(tier['input_micros'])} prompt", f"{exact(tier['output_micros'])} answer"]
    return f"above {tier['above_tokens']:,} tokens: {', '.join([*amounts, *kind_words(tier['rates'])])}"


@dataclass(frozen=True, slots=True)
class PriceChange:
    """A change of a price: its author, its time, and the values before and after."""

    at: datetime
    actor: str
    text: str


def price_changes(row: ModelPrice) -> list[PriceChange]:
    """A price's changes in the audit log, newest first."""
    events = AuditEvent.objects.filter(target_type=row._meta.label_lower, target_id=str(row.pk))
    return [PriceChange(event.at, event.actor, _moved(event.before, event.after or {})) for event in events]


def _moved(before: dict[str, Any] | None, after: dict[str, Any]) -> str:
    """``input $0.10 → $0.15, source …``; of a new price all that it says."""
    known = before or {}
    moved = [name for name, value in after.items() if before is None or known.get(name) != value]
    was = {name: "" if before is None else f"{_cell(known.get(name))} → " for name in moved}
    return ", ".join(f"{name} {was[name]}{_cell(after[name])}" for name in moved)


def _cell(value: Any) -> str:
    if value is None:
        return "as input"
    if isinstance(value, dict):
        return " + ".join(kind_words(value)) or "none"
    if isinstance(value, list):
        return " + ".join(map(_tier_words, value)) or "none"
    return exact(value) if isinstance(value, int) and not isinstance(value, bool) else str(value) or "none"


@dataclass(frozen=True, slots=True)
class ListAge:
    """The day of the site's price list; ``old``: so old that a person should check it."""

    day: date
    old: bool


def list_age(*, today: date | None = None) -> ListAge | None:
    """The age of the newest price for all that came from a file; None: there is none."""
    day = today or datetime.now(UTC).date()
    rows = ModelPrice.objects.filter(organization=None, by_hand=False, valid_from__lte=day)
    newest = rows.order_by("-valid_from").values_list("valid_from", flat=True).first()
    return None if newest is None else ListAge(newest, day - newest > OLD)
