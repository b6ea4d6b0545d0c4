"""Checks of a row before it is written: known fields, valid values, a name that is free."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from django.core.exceptions import ValidationError
from django.db import IntegrityError, models, transaction

from agentcore_site.lib.errors import Conflict, Invalid


def known_fields(values: Mapping[str, Any], fields: Iterable[str]) -> dict[str, Any]:
    """The values, none of which may be of another field.

    Raises:
        Invalid: a field is unknown; the message lists those there are.
    """
    allowed = tuple(fields)
    if unknown := sorted(set(values) - set(allowed)):
        message = f"Unknown field {unknown[0]!r}. Fields: {', '.join(allowed)}."
        raise Invalid(message, fields={unknown[0]: message})
    return dict(values)


def set_fields(row: models.Model, values: Mapping[str, Any], fields: Sequence[str], *, beside: Sequence[str]) -> None:
    """Sets the given fields, with texts stripped. ``beside``: other fields, set elsewhere.

    Raises:
        Invalid: as for ``known_fields``.
    """
    for name, value in known_fields(values, (*fields, *beside)).items():
        if name in fields:
            setattr(row, name, value.strip() if isinstance(value, str) else value)


def hold_row(row: models.Model) -> None:
    """Reads a row again and locks it until the transaction ends: values read before the transaction may be outdated,
    and ``save_row`` writes all of them."""
    row.refresh_from_db(from_queryset=type(row)._default_manager.select_for_update(no_key=True))


def check_row(row: models.Model, *, exclude: Collection[str] = ()) -> None:
    """Runs the model's own checks. Uniqueness and constraints are left to the database.

    Raises:
        Invalid: ``fields`` has the fields and the reasons.
    """
    try:
        row.full_clean(exclude=exclude, validate_unique=False, validate_constraints=False)
    except ValidationError as error:
        fields = {name: " ".join(texts) for name, texts in error.message_dict.items()}
        raise Invalid(" ".join(f"{name}: {text}" for name, text in fields.items()), fields=fields) from error


def save_row(row: models.Model, *, unique: str, taken: str) -> None:
    """Saves a row in a savepoint, so that the caller's transaction outlives a refusal.

    Raises:
        Conflict: another row has its ``unique`` field's value; ``taken`` is the message.
    """
    try:
        with transaction.atomic():
            row.save()
    except IntegrityError as error:
        raise Conflict(taken, fields={unique: taken}) from error


ENTER_AGAIN: Final = "The address is on another host now: enter it again, so that it goes nowhere by mistake."


def moved(before: str, after: str) -> bool:
    """True if an address that was stored is on another host now."""
    return bool(before) and urlsplit(before)[:2] != urlsplit(after)[:2]


def check_secrets_stay(row: Any, names: Iterable[str], *, given: Collection[str], before: str, after: str) -> None:
    """A stored secret is sent to no other host than the one for which it was entered.

    Raises:
        Invalid: the address is on another host now, and a stored secret was not entered with it.
    """
    if not moved(before, after):
        return
    for name in names:
        if getattr(row, name) and name not in given:
            raise Invalid(ENTER_AGAIN, fields={name: ENTER_AGAIN})
