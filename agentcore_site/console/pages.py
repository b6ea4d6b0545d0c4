"""Helpers of the console's views: the actor, refusals as pages, and lists that are read by cursor."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import reduce, wraps
from operator import or_
from typing import Any, Final
from uuid import UUID

import orjson
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import ValidationError
from django.db import DataError
from django.db.models import Count, F, Q, QuerySet, Window
from django.http import HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST

from agentcore_site.console.address import NotedQuery, ignored, searched_for
from agentcore_site.console.saved import Views, opened, saved_views
from agentcore_site.console.tables import Columns, Table, asked_for, noted, table_csv
from agentcore_site.lib.column_values import as_column
from agentcore_site.lib.database import TROUBLE
from agentcore_site.lib.errors import DomainError, Invalid
from agentcore_site.lib.storable import unstorable
from agentcore_site.postgresql.replica import from_replica
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.authentication import actor_of

PAGE_SIZE: Final = 25
COUNT_LIMIT: Final = 10_000

View = Callable[..., HttpResponseBase]


class ElsewhereOpened(Exception):
    """The list opens with a saved view of this person, at another address."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.address = address


def page(view: View) -> View:
    """A page for people who signed in: called as ``view(request, actor, ...)``. A ``DomainError`` becomes a page, or a
    notice if htmx requested a part of one."""

    @wraps(view)
    def wrapped(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not request.user.is_authenticated:
            return _sign_in_first(request)
        try:
            _check(request.GET, "address")
            request.GET = NotedQuery.of(request.GET)  # type: ignore[assignment]  # Django's stubs name a private kind
            actor = actor_of(request)
            response = view(request, actor, *args, **kwargs)
            table = asked_for(request)
            if table is None:
                return response
            if names := ignored(request):
                raise Invalid(no_filter(names))
            return table_csv(actor, table, request.GET.dict())
        except ElsewhereOpened as opens:
            return redirect(opens.address)
        except DomainError as error:
            return refusal(request, error)
        except (ValueError, DataError):
            # A form shows itself which field is wrong. A parameter that no form read is refused here.
            try:
                _check(request.POST, "form")
            except Invalid as error:
                return refusal(request, error)
            raise

    return wrapped


def post_page(view: View) -> View:
    """A ``page`` that accepts POST only."""
    return require_POST(page(view))


def _check(given: QueryDict, what: str) -> None:
    """Raises:
    Invalid: the parameters hold a value that no database accepts.
    """
    if reason := unstorable([[name, *values] for name, values in given.lists()]):
        raise Invalid(f"The {what} can't be used: {reason}.")


def whole_number(given: QueryDict, name: str, *, digits: int = 9) -> int | None:
    """A whole number from 0 of at most ``digits`` digits; None if there is none."""
    text = given.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= digits else None


def sent(request: HttpRequest) -> QueryDict | None:
    """The posted form data, even if empty; None if the form is only shown."""
    return request.POST if request.method == "POST" else None


def secret_page(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """A page whose address is a secret that was mailed: search engines, caches and other sites must not get it. The
    site itself must get the referrer: without it a browser sends forms with the origin "null", which the CSRF
    protection refuses. A ``DomainError`` becomes a page."""

    @wraps(view)
    def wrapped(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            response = view(request, *args, **kwargs)
        except DomainError as error:
            response = refusal(request, error)
        response["X-Robots-Tag"] = "noindex, nofollow"
        response["Cache-Control"] = "no-store"
        response["Referrer-Policy"] = "same-origin"
        return response

    return wrapped


def refusal(request: HttpRequest, error: DomainError) -> HttpResponse:
    """The answer to a refused request: a notice for htmx, a whole page otherwise."""
    if is_part(request):
        response = render(request, "parts/notice.html", {"message": error.message}, status=error.code)
        response["HX-Retarget"], response["HX-Reswap"] = "#notices", "beforeend"
        return response
    known = {403: "403.html", 404: "404.html"}
    context = {"message": error.message, "title": error.title, **shell(request)}
    response = render(request, known.get(error.code, "refused.html"), context, status=error.code)
    if wait := getattr(error, "retry_after", 0):
        response["Retry-After"] = str(wait)
    return response


def shell(request: HttpRequest) -> dict[str, str]:
    """Template context around a refusal: with the navigation and search for people who signed in."""
    try:
        known = request.user.is_authenticated
    except (AttributeError, *TROUBLE):  # refused before the user was read, or the database is away
        known = False
    return {"shell": "base.html" if known else "bare.html"}


def is_part(request: HttpRequest) -> bool:
    """True if htmx requests a part of a page (and will not show a whole one)."""
    return request.headers.get("HX-Request") == "true" and request.headers.get("HX-Boosted") != "true"


def allowed(actor: Actor, organization_id: UUID) -> frozenset[str]:
    """Actions that the actor is allowed in that organisation: templates show only these actions."""
    return frozenset(one for one in actor.rights.get(organization_id, ()) if actor.may(one, organization_id))


def _sign_in_first(request: HttpRequest) -> HttpResponse:
    if is_part(request):
        # A redirect would put the sign-in form into a corner of the page.
        response = HttpResponse(status=401)
        response["HX-Redirect"] = reverse("sign_in")
        return response
    return redirect_to_login(request.get_full_path())


# -- lists ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sort:
    """One order of a list: by ``field`` (must not be null), then by ``tie`` so that the order is total. ``former``: the
    key of earlier releases, which saved views and bookmarks still have."""

    key: str
    title: str
    field: str
    descending: bool = True
    former: str = ""

    @property
    def reversed(self) -> Sort:
        former = self.former and f"-{self.former}"
        return Sort(f"-{self.key}", f"{self.title}, reversed", self.field, not self.descending, former)


@dataclass(frozen=True)
class Ignored:
    """Parameters that no filter of the list reads, as text, and the ``address`` without them."""

    words: str
    address: str


@dataclass(frozen=True)
class Listing:
    """One page of a list. ``count`` is the number of all rows that match, at most ``COUNT_LIMIT`` + 1. ``any``: whether
    there are rows without the filters. ``query``: the search text. ``one``: the noun for a row."""

    rows: list[Any]
    next: str
    count: int
    is_first: bool
    sort: Sort
    sorts: Sequence[Sort]
    any: bool
    query: str
    one: str
    columns: Columns | None = None
    views: Views | None = None
    request: HttpRequest | None = None

    @property
    def ignored(self) -> Ignored | None:
        """Parameters of the address that the list does not read. For the template: until then the view may still read
        more."""
        names = ignored(self.request) if self.request is not None else []
        if not names or self.request is None:
            return None
        left = QueryDict(mutable=True)
        for name, values in self.request.GET.lists():
            if name not in (*names, "cursor"):
                left.setlist(name, values)
        return Ignored(no_filter(names), f"{self.request.path}?{left.urlencode() or 'view=all'}")

    @property
    def noun(self) -> str:
        """The noun, in the number that fits ``count``."""
        return self.one if self.count == 1 else self.nouns

    @property
    def nouns(self) -> str:
        if self.one.endswith("y") and self.one[-2] not in "aeiou":
            return f"{self.one[:-1]}ies"
        return f"{self.one}es" if self.one.endswith("s") else f"{self.one}s"

    @property
    def orders(self) -> list[tuple[str, str]]:
        return [(sort.key, sort.title) for sort in self.sorts]

    def by_head(self, key: str) -> tuple[str, bool | None] | None:
        """Link of the header of the column with the sort ``key``, and whether the list descends by that column now
        (None: another order). None if no sort has that key."""
        own = next((sort for sort in self.sorts if sort.key == key), None)
        if own is None:
            return None
        if own.field != self.sort.field:
            return own.key, None
        turned = not self.sort.descending
        other = next((one for one in self.sorts if (one.field, one.descending) == (own.field, turned)), own.reversed)
        return other.key, self.sort.descending

    @property
    def many(self) -> bool:
        return self.count > COUNT_LIMIT

    @property
    def limit(self) -> int:
        return COUNT_LIMIT


def no_filter(names: Sequence[str]) -> str:
    """A sentence: the list ignores these parameters of its address."""
    called = " and ".join(f"“{name[:40]}”" for name in names[:3])
    return f"This list has no filter{'s' if len(names) > 1 else ''} {called}."


def query_params(request: HttpRequest, *names: str) -> list[str]:
    """The address's value for each name; "" if it has none."""
    return [request.GET.get(name, "").strip() for name in names]


def matching(rows: QuerySet[Any], query: str, *fields: str, also: Q | None = None) -> QuerySet[Any]:
    """The rows in which a field contains the text, or that match ``also``; all rows if the text is empty."""
    holds = (Q(**{f"{name}__icontains": query}) for name in fields)
    return rows.filter(reduce(or_, holds, also or Q())) if query else rows


def side_panel(request: HttpRequest, template: str, shown: Callable[[str], Any]) -> dict[str, Any]:
    """Template context of the side panel: the row that ``?panel=`` names, or nothing."""
    [key] = query_params(request, "panel")
    return {"panel": shown(key) if key else None, "panel_key": key, "panel_template": template}


def listing(
    request: HttpRequest,
    rows: QuerySet[Any],
    sorts: Sequence[Sort],
    *,  # what pages choose, each with a default
    one: str = "row",
    of: QuerySet[Any] | None = None,
    tie: str = "pk",
    size: int = PAGE_SIZE,
    columns: Columns | None = None,
    first: Collection[Any] = (),
    at_once: bool = False,
) -> Listing:
    """The page for ``?sort=`` and ``?cursor=``. A cursor is the position of the last row and not a number of rows, so
    that no row is repeated or skipped while others arrive. A broken cursor shows the first page.

    ``of``: the rows before they were filtered; without it the list counts as one with rows. ``columns``: of the list as
    CSV, for ``?as=csv``; without them the list is a page only. ``first``: keys of the few rows that come before all
    others, on the first page. ``at_once``: for a search that reads all rows in any case, of a table of at most some ten
    thousand rows: rows are counted while they are read.

    Raises:
        ElsewhereOpened: the address has no parameters, and the person opens this list with a saved view.
    """
    actor = actor_of(request)
    views = saved_views(actor, request)
    if views is not None and (opening := opened(actor, request, views)) is not None:
        raise ElsewhereOpened(opening.address)
    sort = chosen_sort(sorts, request.GET.get("sort", ""))
    sorts = sorts if sort in sorts else (*sorts, sort)
    cursor = _decoded(request.GET.get("cursor", ""))
    count, top, chosen, after = from_replica(rows, _PageRead(sort, cursor, tie, size + 1, first, at_once).read)
    last = chosen[size - 1] if len(chosen) > size else None
    following = _encoded(last._at, last.pk) if last is not None else ""
    some = bool(count) or of is None or of.exists()
    query = searched_for(request)
    found = Listing(
        [*top, *chosen[:size]], following, count, after is None, sort, sorts, some, query, one, columns, views, request
    )
    if columns is not None:
        noted(request, Table(found.nouns.replace(" ", "-"), columns, rows, sort.field, tie, sort.descending))
    return found


def chosen_sort(sorts: Sequence[Sort], key: str) -> Sort:
    """The order with that key or former key; a "-" in front reverses it. The first order if there is none."""
    both = (order for sort in sorts for order in (sort, sort.reversed))
    return next((order for order in both if key and key in (order.key, order.former)), sorts[0])


@dataclass(frozen=True)
class _PageRead:
    """One page of rows as ``listing`` reads it: at most ``most`` rows after the ``cursor``."""

    sort: Sort
    cursor: tuple[Any, Any] | None
    tie: str
    most: int
    first: Collection[Any]
    at_once: bool

    def read(self, rows: QuerySet[Any]) -> tuple[int, list[Any], list[Any], Q | None]:
        """The number of rows, the rows that come ``first`` (on the first page), the next rows after the cursor, and the
        cursor's condition (None: it is the first page)."""
        sign = "-" if self.sort.descending else ""
        found = rows.annotate(_at=F(self.sort.field)).order_by(f"{sign}_at", f"{sign}{self.tie}")
        others = found.exclude(pk__in=self.first) if self.first else found
        try:
            after = self._after(found, self.cursor) if self.cursor else None
            if after is not None:
                return _count(rows), [], first_of(others.filter(after), self.most), after
        except (ValidationError, ValueError, TypeError):
            pass  # a broken cursor shows the first page
        top = list(found.filter(pk__in=self.first)) if self.first else []
        if not self.at_once:
            return _count(rows), top, first_of(others, self.most), None
        read = list(others.annotate(_n=Window(Count("*"))).values_list("pk", "_n")[: self.most])
        count = len(top) + (read[0][1] if read else 0)
        return min(count, COUNT_LIMIT + 1), top, list(others.filter(pk__in=[key for key, _ in read])), None

    def _after(self, rows: QuerySet[Any], cursor: tuple[Any, Any]) -> Q:
        value, key = as_column(rows.query.annotations["_at"].output_field, cursor[0]), cursor[1]
        side = "lt" if self.sort.descending else "gt"
        # The first part is redundant, and lets an index start there.
        return Q(**{f"_at__{side}e": value}) & (Q(**{f"_at__{side}": value}) | Q(**{f"{self.tie}__{side}": key}))


def _count(rows: QuerySet[Any]) -> int:
    return rows.order_by()[: COUNT_LIMIT + 1].count()


def first_of(rows: QuerySet[Any], most: int) -> list[Any]:
    """The first ``most`` rows. Keys are selected before the joins: the sorted rows are narrow, and few are joined."""
    if not rows.query.select_related:
        return list(rows[:most])
    return list(rows.filter(pk__in=rows.values("pk")[:most]))


def _encoded(*place: Any) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(place, default=str)).decode().rstrip("=")


def _decoded(cursor: str) -> tuple[Any, Any] | None:
    try:
        place = orjson.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError):
        return None
    if (
        isinstance(place, list)
        and len(place) == 2
        and not unstorable(place)
        and all(isinstance(one, str | int | float) for one in place)
    ):
        return place[0], place[1]
    return None
