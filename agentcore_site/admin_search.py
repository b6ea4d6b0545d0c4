"""One search over all the records of the Django admin: by the search of each model's own page, and by id.

A person finds the rows that these pages show to them. Each model is one statement with a time limit, so that a table of
millions of rows without a match holds up no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

from django.contrib.admin import AdminSite
from django.db import OperationalError, connection, transaction
from django.db.models import IntegerField, Model, UUIDField
from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import urlencode
from psycopg.errors import QueryCanceled

from agentcore_site.lib.texts import uuid_of

MOST_HITS: Final = 5  # of each model
SHORTEST: Final = 2  # characters
LONGEST: Final = 200
MODEL_MS: Final = 1_000
ALL_SECONDS: Final = 8.0


@dataclass(frozen=True, slots=True)
class RecordHit:
    title: str
    url: str


@dataclass(frozen=True, slots=True)
class RecordGroup:
    """The hits in one model. ``all_url``: the list of all hits, where there are more than are shown."""

    title: str
    hits: list[RecordHit]
    all_url: str


@dataclass(slots=True)
class RecordSearch:
    """``searched``: the number of models; ``late``: the names of those whose time was over; ``problem``: a reason why
    the text cannot be searched for."""

    term: str
    groups: list[RecordGroup] = field(default_factory=list)
    searched: int = 0
    late: list[str] = field(default_factory=list)
    problem: str = ""


def record_search(site: AdminSite, request: HttpRequest, first: Sequence[str]) -> RecordSearch:
    """Searches for ``?q=``; an empty text finds nothing, and is no problem. ``first``: labels of the models whose hits
    come first."""
    term = request.GET.get("q", "").strip()
    found = RecordSearch(term[:LONGEST])
    if len(term) > LONGEST:
        found.problem = f"A search has at most {LONGEST} characters, and this text has {len(term):,}. Shorten it."
    elif term and len(term) < SHORTEST:
        found.problem = f"Type at least {SHORTEST} characters."
    elif term:
        _search(found, request, _pages(site, request, first))
    return found


def _pages(site: AdminSite, request: HttpRequest, first: Sequence[str]) -> list[tuple[str, Any]]:
    """(name, page) of the models that the person may see and that can be searched."""
    models = [model for app in site.get_app_list(request) for model in app["models"] if model["perms"]["view"]]
    order = {label: n for n, label in enumerate(first)}
    models.sort(key=lambda model: order.get(model["model"]._meta.label_lower, len(order)))
    pages = [(str(model["name"]), site._registry[model["model"]]) for model in models]
    return [(name, page) for name, page in pages if page.get_search_fields(request)]


def _search(found: RecordSearch, request: HttpRequest, pages: list[tuple[str, Any]]) -> None:
    waiting, until = pages[::-1], monotonic() + ALL_SECONDS
    while waiting and monotonic() < until:
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("SELECT set_config('statement_timeout', %s, true)", [str(MODEL_MS)])
                while waiting and monotonic() < until:
                    name, page = waiting[-1]
                    if group := _group(name, page, request, found.term):
                        found.groups.append(group)
                    found.searched += 1
                    waiting.pop()
        except OperationalError as error:
            if not isinstance(error.__cause__, QueryCanceled):
                raise
            found.late.append(waiting.pop()[0])
    found.late += [name for name, _ in reversed(waiting)]


def _group(name: str, page: Any, request: HttpRequest, term: str) -> RecordGroup | None:
    rows = page.get_queryset(request)
    matches, _ = page.get_search_results(request, rows, term)
    if (key := _key(page.model, term)) is not None:
        matches = matches | rows.filter(pk=key)
    listed = list({row.pk: row for row in matches[: MOST_HITS + 1]}.values())
    if not listed:
        return None
    opts = page.opts
    base = f"{page.admin_site.name}:{opts.app_label}_{opts.model_name}"
    hits = [RecordHit(str(row) or str(row.pk), reverse(f"{base}_change", args=[row.pk])) for row in listed[:MOST_HITS]]
    more = len(listed) > MOST_HITS
    return RecordGroup(name, hits, f"{reverse(f'{base}_changelist')}?{urlencode({'q': term})}" if more else "")


def _key(model: type[Model], term: str) -> Any:
    """The text as a key of the model; None where it cannot be one."""
    key: Any = model._meta.pk
    while key.is_relation:  # the row has the key of another one
        key = key.target_field
    if isinstance(key, UUIDField):
        return uuid_of(term)
    whole = isinstance(key, IntegerField) and term.isascii() and term.isdecimal() and len(term) <= 18
    return int(term) if whole else None
