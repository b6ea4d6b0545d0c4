"""The query string of a page, checked: filters that are unknown are left out, as on every list."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from django.http import HttpRequest

from agentcore_site.console.pages import query_params


def one_of(request: HttpRequest, name: str, known: Iterable[str], default: str = "") -> str:
    """A parameter that is one of some words, else the default."""
    [text] = query_params(request, name)
    return text if text in known else default


def month_asked(request: HttpRequest, default: date) -> date:
    """``?month=2026-11`` as its first day; the default where it is none."""
    try:
        year, month = query_params(request, "month")[0].split("-")
        return date(int(year), int(month), 1)
    except ValueError:
        return default
