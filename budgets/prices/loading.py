"""Prices from a file: our own format (``prices.json``) or LiteLLM's (``model_prices_and_context_window.json``).

Numbers are read as decimals, so that nothing is lost on the way to micro-dollars; what is left over is rounded up.
Where a model has tiers, the most expensive counts: a hold has to cover the call in any tier.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import ROUND_CEILING, Decimal
from pathlib import Path
from typing import Any, Final

from django.db import transaction

from agentcore_site.audit.services import record
from agentcore_site.lib.errors import Invalid
from agentcore_site.lib.money import MICROS
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from budgets.ledger.values import storable
from budgets.models import ModelPrice

SEED: Final = Path(__file__).with_name("prices.json")
CHAT: Final = ("chat", "completion", "responses")  # LiteLLM's modes of what is paid by tokens in and out
HIGHEST: Final = 10**12  # a million dollars per million tokens


@dataclass(frozen=True, slots=True)
class PriceFileLine:
    """A price of a file, in micro-dollars per million tokens, or the reason ``why`` it can't be used."""

    model: str
    valid_from: date | None = None
    input_micros: int = 0
    output_micros: int = 0
    cached_input_micros: int | None = None
    per_call_micros: int = 0
    free: bool = False
    source: str = ""
    why: str = ""

    @property
    def values(self) -> dict[str, Any]:
        """The values that make two prices equal: their source is not compared."""
        return {
            "input_micros": self.input_micros,
            "cached_input_micros": self.cached_input_micros,
            "output_micros": self.output_micros,
            "per_call_micros": self.per_call_micros,
            "free": self.free,
        }


@dataclass(slots=True)
class Loaded:
    """The outcome of a file: models by what became of them. ``skipped`` says why; ``kept`` were edited by hand."""

    new: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)


@transaction.atomic
def prices_load(
    raw: bytes,
    *,
    name: str,
    valid_from: date,
    organization: Organization | None = None,
    actor: Actor | None = None,
    replace: bool = False,
) -> Loaded:
    """Adds the prices of a file to the table; the same file twice changes nothing.

    ``valid_from`` is for files that don't say; ``name`` is in the source of such prices. A price that differs from
    the one that is valid on its day is a new row of that day, or corrects the row of that very day. Where the valid one
    was set by a person it is kept, unless ``replace``: every start loads the seed, and must not undo a correction.

    Raises:
        Invalid: it is no JSON, or of neither format.
    """
    loaded = Loaded()
    known: dict[str, list[ModelPrice]] = {}
    for row in ModelPrice.objects.filter(organization=organization).order_by("valid_from"):
        known.setdefault(row.model, []).append(row)
    seen: set[str] = set()
    for line in parse(raw, name=name):
        why = line.why or ("it is in the file twice" if line.model in seen else "")
        if why:
            loaded.skipped[line.model] = why
            continue
        seen.add(line.model)
        day = line.valid_from or valid_from
        past = [row for row in known.get(line.model, []) if row.valid_from <= day]
        newest = past[-1] if past else None
        if newest is not None and all(getattr(newest, key) == value for key, value in line.values.items()):
            loaded.same.append(line.model)
            continue
        if newest is not None and newest.by_hand and not replace:
            loaded.kept.append(line.model)
            continue
        row = newest if newest is not None and newest.valid_from == day else None
        before = None if row is None else {key.removesuffix("_micros"): getattr(row, key) for key in line.values}
        row = row or ModelPrice(organization=organization, model=line.model, valid_from=day)
        for key, value in line.values.items():
            setattr(row, key, value)
        row.source, row.by_hand = line.source[:200], False
        row.save()
        if before is not None:  # a new day's row is its own history
            after = {key.removesuffix("_micros"): value for key, value in line.values.items()}
            record(actor, "price.changed", row, before=before, after=after | {"source": row.source})
        (loaded.new if newest is None else loaded.changed).append(line.model)
    if loaded.new or loaded.changed:
        counts = {"file": name, "new": len(loaded.new), "changed": loaded.changed[:100]}
        record(actor, "prices.loaded", organization=organization, after=counts)
    return loaded


def parse(raw: bytes, *, name: str) -> Iterator[PriceFileLine]:
    """The lines of a file of either format.

    Raises:
        Invalid: as for ``prices_load``.
    """
    try:
        value = json.loads(raw, parse_float=Decimal, parse_int=Decimal, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"{name} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise Invalid(f"{name} is a list or a bare value, not an object of models.")
    return _own(value, name) if isinstance(value.get("providers"), list) else _litellm(value, name)


def _own(value: Mapping[str, Any], name: str) -> Iterator[PriceFileLine]:
    try:
        day = date.fromisoformat(str(value["as_of"]))
    except (KeyError, ValueError) as error:
        raise Invalid(f"{name} needs as_of, a date like 2025-08-15.") from error
    try:
        entries = [
            (provider["source"], entry, model)
            for provider in value["providers"]
            for entry in provider["models"]
            for model in (entry["model"], *entry.get("aliases", ()))
        ]
    except (KeyError, TypeError, AttributeError) as error:
        raise Invalid(f"{name} is not of our format: see budgets/prices/prices.json.") from error
    for source, entry, model in entries:
        note = f"; {entry['note']}" if entry.get("note") else ""
        price = _Amounts(
            input_micros=_scaled(entry.get("input"), MICROS),
            output_micros=_scaled(entry.get("output"), MICROS),
            cached_input_micros=_scaled(entry.get("cached_input"), MICROS),
            per_call_micros=_scaled(entry.get("per_call", 0), MICROS),
        )
        yield _line(model, day, f"{source} as of {day}, approximate{note}", price)


def _litellm(value: Mapping[str, Any], name: str) -> Iterator[PriceFileLine]:
    for model, entry in value.items():
        if model == "sample_spec":
            continue  # the file's own documentation
        if not isinstance(entry, dict):
            yield PriceFileLine(model, why="it is no object")
            continue
        mode = entry.get("mode", "chat")
        if mode not in CHAT:
            yield PriceFileLine(model, why=f"its mode is {mode!r}, not paid by tokens in and out")
            continue
        price = _Amounts(
            input_micros=_highest(entry, "input_cost_per_token"),
            output_micros=_highest(entry, "output_cost_per_token", "output_cost_per_reasoning_token"),
            cached_input_micros=_highest(entry, "cache_read_input_token_cost"),
            per_call_micros=_scaled(entry.get("input_cost_per_request", 0), MICROS),
        )
        yield _line(model, None, str(entry.get("source") or f"LiteLLM: {name}"), price)


def _highest(entry: Mapping[str, Any], *names: str) -> int | None:
    """The highest of a price and of its tiers by length (``…_above_200k_tokens``), from dollars per token."""
    known = [key for key in entry if key in names or key.startswith(f"{names[0]}_above_")]
    found = [amount for key in known if (amount := _scaled(entry[key], MICROS * MICROS)) is not None]
    return max(found, default=None) if names[0] in entry else None


@dataclass(frozen=True, slots=True)
class _Amounts:
    """The prices of a model as its file has them; None where a price is missing or no number."""

    input_micros: int | None
    output_micros: int | None
    cached_input_micros: int | None
    per_call_micros: int | None


def _line(model: str, day: date | None, source: str, price: _Amounts) -> PriceFileLine:
    name = storable(str(model).strip())
    if not name or len(name) > 200:
        return PriceFileLine(str(model)[:60], why="its name is empty or longer than 200 characters")
    if price.input_micros is None or price.output_micros is None:
        return PriceFileLine(name, why="the price of a token in or out is missing or no number")
    known = (price.input_micros, price.output_micros, price.cached_input_micros, price.per_call_micros)
    amounts = [amount for amount in known if amount is not None]
    if min(amounts) < 0 or max(amounts) > HIGHEST:
        return PriceFileLine(name, why="a price is negative or beyond reason")
    if not any(amounts):
        return PriceFileLine(name, why="all its prices are zero: declare it free by hand if it is")
    return PriceFileLine(
        name,
        day,
        price.input_micros,
        price.output_micros,
        price.cached_input_micros,
        price.per_call_micros or 0,
        source=storable(source),
    )


def _scaled(value: Any, factor: int) -> int | None:
    """A decimal of the file times ``factor``, rounded up; None where it is no number."""
    if not isinstance(value, Decimal) or not value.is_finite():
        return None
    return int((value * factor).to_integral_value(rounding=ROUND_CEILING)) if value.adjusted() < 20 else HIGHEST + 1


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no price")
