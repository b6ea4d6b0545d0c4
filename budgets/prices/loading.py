"""Prices from a file (``formats``) or from the shipped book go into the table."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Final

from django.db import transaction

from agentcore_site.audit.services import record
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from budgets.models import ModelPrice
from budgets.prices.formats import BOOK, PriceFileLine, book_source, lines_of, parse

SEED: Final = Path(__file__).with_name("prices.json")
__all__ = ["BOOK", "SEED", "Loaded", "PriceFileLine", "book_is_loaded", "parse", "prices_load"]


@dataclass(slots=True)
class Loaded:
    """The outcome of a file: models by what became of them. ``skipped`` says why; ``kept`` were edited by hand."""

    new: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)


def book_is_loaded(organization: Organization | None) -> bool:
    """Whether the prices of the installed version of the book are in the table."""
    rows = ModelPrice.objects.filter(organization=organization)
    return rows.filter(source__startswith=f"{book_source()},").exists()


@transaction.atomic
def prices_load(
    raw: bytes | None,
    *,
    name: str,
    valid_from: date,
    organization: Organization | None = None,
    actor: Actor | None = None,
    replace: bool = False,
) -> Loaded:
    """Adds the prices of a file, or without one those of the shipped book, to the table; twice changes nothing.

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
    made: list[ModelPrice] = []
    seen: set[tuple[str, date]] = set()
    for line in lines_of(raw, name=name, today=valid_from):
        why = line.why or ("it is in the file twice" if (line.model, line.valid_from or valid_from) in seen else "")
        if why:
            loaded.skipped[line.model] = why
            continue
        day = line.valid_from or valid_from
        seen.add((line.model, day))
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
        if before is None:  # a new day's row is its own history
            made.append(row)
            known.setdefault(line.model, []).append(row)
        else:
            row.save()
            after = {key.removesuffix("_micros"): value for key, value in line.values.items()}
            record(actor, "price.changed", row, before=before, after=after | {"source": row.source})
        (loaded.new if newest is None else loaded.changed).append(line.model)
    ModelPrice.objects.bulk_create(made, batch_size=500)
    if loaded.new or loaded.changed:
        counts = {"file": name, "new": len(loaded.new), "changed": loaded.changed[:100]}
        record(actor, "prices.loaded", organization=organization, after=counts)
    return loaded
