"""The query string of a page, checked: filters that are unknown are left out, as on every list."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from datetime import date
from typing import Any, Final

from django.db.models import QuerySet
from django.http import HttpRequest

from agentcore_site.console.pages import PAGE_SIZE, Listing, Sort, listing
from agentcore_site.lib.errors import Invalid
from agentcore_site.lib.storable import unstorable

NO_PLACE: Final = "This place in the list does not exist. Begin with its first page."


def asked(request: HttpRequest, name: str) -> str:
    """A parameter's text, stripped.

    Raises:
        Invalid: it holds what no database can be asked for.
    """
    text = str(request.GET.get(name, "")).strip()
    if reason := unstorable(text):
        raise Invalid(f"The address can't be used: {reason}.", fields={name: reason})
    return text


def one_of(request: HttpRequest, name: str, known: Iterable[str], default: str = "") -> str:
    """A parameter that is one of some words, else the default."""
    text = asked(request, name)
    return text if text in known else default


def month_asked(request: HttpRequest, default: date) -> date:
    """``?month=2026-11`` as its first day; the default where it is none."""
    try:
        year, month = asked(request, "month").split("-")
        return date(int(year), int(month), 1)
    except ValueError:
        return default


def listed(request: HttpRequest, rows: QuerySet[Any], sorts: Sequence[Sort], *, size: int = PAGE_SIZE) -> Listing:
    """``agentcore_site.console.pages.listing``, also for forged cursors.

    Raises:
        Invalid: the cursor's values are not of the kind that the list is sorted by, or can't be in any database.
    """
    cursor = asked(request, "cursor")
    try:
        place = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).lower()
    except (binascii.Error, ValueError):
        place = b""
    if b"\\u0000" in place or b"\\ud" in place:
        raise Invalid(NO_PLACE)
    try:
        return listing(request, rows, sorts, size=size)
    except TypeError as error:
        if not cursor:
            raise
        raise Invalid(NO_PLACE) from error
