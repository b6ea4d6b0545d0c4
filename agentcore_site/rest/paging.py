"""Cursor pages over any ordering: ``{"next", "previous", "results"}``.

A cursor holds the last row's sorting values and its key, so a page costs the same at any place. Rows that
arrive meanwhile shift nothing, and rows with equal values are neither skipped nor repeated.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db.models import Field, Model, Q, QuerySet
from django.utils.encoding import force_str
from rest_framework.pagination import BasePagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import replace_query_param

from agentcore_site.lib.column_values import as_column
from agentcore_site.lib.errors import Invalid
from agentcore_site.postgresql.replica import from_replica

DEFAULT_LIMIT: Final = 50
MAX_LIMIT: Final = 200


def keyset(rows: QuerySet[Any], names: Sequence[str], last: Sequence[Any]) -> QuerySet[Any]:
    """The rows after ``last`` in the order ``names`` (all ascending, or all with ``-``).

    (a, b) > (x, y) is written as a >= x and (a > x or (a = x and b > y)): the first term is a range of an index.
    """
    beyond = "lt" if names[0].startswith("-") else "gt"
    plain = [name.lstrip("-") for name in names]
    condition = Q()
    for depth in range(len(plain)):
        equal = dict(zip(plain[:depth], last, strict=False))
        condition |= Q(**equal, **{f"{plain[depth]}__{beyond}": last[depth]})
    return rows.filter(Q(**{f"{plain[0]}__{beyond}e": last[0]}) & condition)


def values_at(row: Model, names: Sequence[str]) -> list[Any]:
    """A row's sorting values; a name may walk over relations (``job__created_at``)."""
    found = []
    for name in names:
        value: Any = row
        for part in name.lstrip("-").split("__"):
            value = getattr(value, part)
        found.append(value)
    return found


class CursorPages(BasePagination):
    """Reads ``limit``, ``cursor`` and ``ordering``. A view says how: ``orderings`` maps public names to fields, the
    first is the default; ``tiebreak`` is a unique field."""

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> list[Any]:
        self.request = request
        self.names = self._ordering(request, view)
        limit = self._limit(request)
        values, backwards = self._cursor(request, queryset.model)
        names = [name[1:] if name.startswith("-") else f"-{name}" for name in self.names] if backwards else self.names
        rows = queryset.order_by(*names)
        if values is not None:
            rows = keyset(rows, names, values)
        found = from_replica(rows, lambda rows: list(rows[: limit + 1]))
        more, page = len(found) > limit, found[:limit]
        if backwards:
            page.reverse()
        self.has_next = more if not backwards else True
        self.has_previous = more if backwards else values is not None
        self.page = page
        return page

    def get_paginated_response(self, data: Any) -> Response:
        following = self._link(self.page[-1], False) if self.page and self.has_next else None
        previous = self._link(self.page[0], True) if self.page and self.has_previous else None
        return Response({"next": following, "previous": previous, "results": data})

    # -- reading ---------------------------------------------------------------------------------------------------

    def _ordering(self, request: Request, view: Any) -> list[str]:
        orderings: Mapping[str, str] = view.orderings
        asked = request.query_params.get("ordering") or next(iter(orderings))
        public = asked.lstrip("-")
        by_name = {name.lstrip("-"): field for name, field in orderings.items()}
        if public not in by_name:
            message = f"Unknown ordering {asked[:60]!r}. Known: {', '.join(by_name)}, each also with a leading minus."
            raise Invalid(message, fields={"ordering": message})
        minus = "-" if asked.startswith("-") else ""
        return [f"{minus}{by_name[public]}", f"{minus}{view.tiebreak}"]

    def _limit(self, request: Request) -> int:
        raw = request.query_params.get("limit", str(DEFAULT_LIMIT))
        if not (raw.isascii() and raw.isdigit()) or len(raw) > 9 or not 1 <= int(raw) <= MAX_LIMIT:
            message = f"limit must be between 1 and {MAX_LIMIT}; got {raw[:20]!r}."
            raise Invalid(message, fields={"limit": message})
        return int(raw)

    def _cursor(self, request: Request, model: type[Model]) -> tuple[list[Any] | None, bool]:
        raw = request.query_params.get("cursor")
        if not raw:
            return None, False
        try:
            names, values, backwards = orjson.loads(base64.urlsafe_b64decode(raw.encode("ascii")))
            if names != self.names or len(values) != len(names):
                raise ValueError("made for another ordering")
            fields = [_field(model, name) for name in names]
            clean = [as_column(field, value) for field, value in zip(fields, values, strict=True)]
            if any(value is None for value in clean):
                raise ValueError("empty")
            return clean, bool(backwards)
        except (
            ValueError,
            TypeError,
            KeyError,
            ValidationError,
            UnicodeError,
            OverflowError,
            FieldDoesNotExist,
        ) as error:
            message = "This cursor is not one of ours, or it belongs to another ordering. Begin without a cursor."
            raise Invalid(message, fields={"cursor": message}) from error

    def _link(self, row: Model, backwards: bool) -> str:
        state = [self.names, [_json_value(value) for value in values_at(row, self.names)], backwards]
        cursor = base64.urlsafe_b64encode(orjson.dumps(state)).decode("ascii")
        return str(replace_query_param(force_str(self.request.build_absolute_uri()), "cursor", cursor))

    # -- telling OpenAPI -------------------------------------------------------------------------------------------

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        names = [sign + name.lstrip("-") for name in view.orderings for sign in ("", "-")]
        default = next(iter(view.orderings))
        limit = {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT}
        return [
            _parameter("cursor", "Where to go on; take it from `next` or `previous`.", {"type": "string"}),
            _parameter("limit", "How many results a page has.", limit),
            _parameter("ordering", "What to sort by.", {"type": "string", "enum": names, "default": default}),
        ]

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        link = {"type": "string", "format": "uri", "nullable": True}
        return {
            "type": "object",
            "required": ["next", "previous", "results"],
            "properties": {"next": link, "previous": link, "results": schema},
        }


def _parameter(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "description": description, "schema": schema}


def _json_value(value: Any) -> Any:
    return value if isinstance(value, int | float | str) else str(value)


def _field(model: type[Model], name: str) -> Field[Any, Any]:
    *path, last = name.lstrip("-").split("__")
    for part in path:
        related = model._meta.get_field(part).related_model
        assert isinstance(related, type)
        model = related
    found = model._meta.pk if last == "pk" else model._meta.get_field(last)
    assert isinstance(found, Field)
    if found.remote_field is not None and found.is_relation:  # a primary key that is a relation: compare its value
        found = found.target_field  # type: ignore[attr-defined]
    return found
