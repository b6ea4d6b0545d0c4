"""A list of the console as CSV: the same rows, filters and order, all of them, streamed in constant memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from uuid import UUID

import orjson
from django.db.models import F, Q, QuerySet
from django.http import HttpRequest, StreamingHttpResponse
from rest_framework.serializers import Field, Serializer

from agentcore_site.audit.services import record
from agentcore_site.lib.async_db import briefly
from agentcore_site.lib.row_streams import streamed
from agentcore_site.lib.spreadsheets import csv_line
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import current_organization

BATCH: Final = 500
ASKED: Final = "as"  # ?as=csv
NOTED: Final = "_table"  # on the request: the list of its page
MEDIA: Final = "text/csv; charset=utf-8"


# Columns of a list as CSV are the fields of its row, which is the list's row in REST where there is one.
Columns = type[Serializer[Any]]


class At(Field):  # type: ignore[type-arg]
    """The value at a path: attributes of the row and keys of its objects, joined by dots; None where it ends early."""

    def __init__(self, path: str) -> None:
        super().__init__(read_only=True)
        self.path = path.split(".")

    def get_attribute(self, row: Any) -> Any:
        for name in self.path:
            row = row.get(name) if isinstance(row, Mapping) else None if row is None else getattr(row, name)
        return row

    def to_representation(self, value: Any) -> Any:
        return value


def columns(paths: str, shape: Columns = Serializer) -> Columns:
    """The columns of ``shape``, and then others by a text such as ``"id agent=agent.slug"``: a column's path is its
    name, unless another one follows."""
    named = (one.partition("=") for one in paths.split())
    return type("Row", (shape,), {name: At(path or name) for name, _, path in named})


@dataclass(frozen=True)
class Table:
    """``rows`` in the order of ``field`` and then of ``tie``, with the sign of Django."""

    name: str
    columns: Columns
    rows: QuerySet[Any]
    field: str
    tie: str = "pk"
    descending: bool = False

    @briefly
    def batch(self, actor: Actor, last: tuple[Any, Any] | None) -> tuple[tuple[Any, Any] | None, bytes]:
        """(the last row's value and key, the next lines); no lines at the end."""
        sign, side = ("-", "lt") if self.descending else ("", "gt")
        rows = self.rows.annotate(_at=F(self.field)).order_by(f"{sign}_at", f"{sign}{self.tie}")
        if last is not None:
            value, key = last
            rows = rows.filter(Q(**{f"_at__{side}": value}) | Q(**{"_at": value, f"{self.tie}__{side}": key}))
        found = list(rows[:BATCH])
        if not found:
            return last, b""
        return (found[-1]._at, found[-1].pk), b"".join(map(csv_line, self.cells(actor, found)))

    def cells(self, actor: Actor, rows: Sequence[Any]) -> Iterator[Iterator[Any]]:
        shown = self.columns(rows, many=True, context={"actor": actor}).data
        return (map(cell, row.values()) for row in shown)


def noted(request: HttpRequest, table: Table) -> None:
    """Stores the list of this page, for a request of it as CSV (``page`` answers)."""
    setattr(request, NOTED, table)


def is_table(request: HttpRequest) -> bool:
    """True if the list is requested as CSV, which has each row that a page may group with others."""
    return request.GET.get(ASKED) == "csv"


def asked_for(request: HttpRequest) -> Table | None:
    """The list that is requested as CSV; None if a page is requested, or the page has no list."""
    return getattr(request, NOTED, None) if request.method == "GET" and request.GET.get(ASKED) == "csv" else None


def table_csv(actor: Actor, table: Table, asked: Mapping[str, str]) -> StreamingHttpResponse:
    """The whole list. The audit log records the export and its parameters."""
    filters = {name: value for name, value in asked.items() if name != ASKED}
    record(
        actor,
        "table.exported",
        organization=current_organization(actor),
        after={"table": table.name, "filters": filters},
    )
    headers = {"Content-Disposition": f'attachment; filename="{table.name}.csv"'}
    lines = streamed(partial(table.batch, actor), csv_line(table.columns().fields))
    return StreamingHttpResponse(lines, content_type=MEDIA, headers=headers)


def cell(value: Any) -> Any:
    """A value as a cell shows it: an id as text, several values joined by semicolons, an object as JSON."""
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, list | tuple) and not any(isinstance(one, dict | list) for one in value):
        return "; ".join(map(str, value))
    return orjson.dumps(value, default=str).decode() if isinstance(value, dict | list) else value
