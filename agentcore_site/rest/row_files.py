"""Rows of a REST list as a file: JSON lines or CSV, streamed in constant memory in the shape that the list has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import orjson
from django.db.models import QuerySet
from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.serializers import Serializer

from agentcore_site.lib.async_db import briefly
from agentcore_site.lib.errors import Invalid
from agentcore_site.lib.row_streams import streamed
from agentcore_site.lib.spreadsheets import csv_line

BATCH: Final = 500
MEDIA: Final = {"jsonl": "application/x-ndjson", "csv": "text/csv; charset=utf-8"}
FORMAT: Final = OpenApiParameter(
    "format",
    str,
    enum=[*MEDIA],
    default="jsonl",
    description="`jsonl`: an object a line; `csv`: with a header, objects and lists as JSON, and a quote in front of"
    " text that a spreadsheet would run.",
)
RESPONSES: Final = {
    (200, "application/x-ndjson"): OpenApiResponse(OpenApiTypes.STR, "One row a line."),
    (200, "text/csv"): OpenApiResponse(OpenApiTypes.STR, "One row a line, with a header."),
}


@dataclass(frozen=True)
class RowFile:
    """``shape`` is the list's; ``by`` a unique column, in whose order the rows come. ``context``: what the shape needs
    for a batch of rows."""

    name: str
    rows: QuerySet[Any]
    shape: type[Serializer[Any]]
    by: str = "pk"
    context: Callable[[Sequence[Any]], Mapping[str, Any]] = lambda rows: {}

    @property
    def columns(self) -> list[str]:
        return [*self.shape().fields]

    @briefly
    def batch(self, form: str, last: Any) -> tuple[Any, bytes]:
        """(the last row's place, the next lines in this format); no lines at the end."""
        rows = self.rows.order_by(self.by)
        found = list((rows if last is None else rows.filter(**{f"{self.by}__gt": last}))[:BATCH])
        if not found:
            return last, b""
        shown = self.shape(found, many=True, context=dict(self.context(found))).data
        rows_shown = orjson.loads(JSONRenderer().render(shown))
        if form == "csv":
            names = self.columns
            lines = [csv_line(_cell(row[name]) for name in names) for row in rows_shown]
        else:
            lines = [orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows_shown]
        return getattr(found[-1], self.by), b"".join(lines)


def row_file(request: Request, file: RowFile) -> StreamingHttpResponse:
    """Raises:
    Invalid: the format is unknown."""
    form = request.query_params.get("format", "jsonl")
    if form not in MEDIA:
        message = f"format must be jsonl or csv; got {form[:20]!r}."
        raise Invalid(message, fields={"format": message})
    return row_answer(file, form)


def row_answer(file: RowFile, form: str = "jsonl") -> StreamingHttpResponse:
    """All rows; a page of the console answers with the file that REST has."""
    lines = streamed(partial(file.batch, form), csv_line(file.columns) if form == "csv" else b"")
    headers = {"Content-Disposition": f'attachment; filename="{file.name}.{form}"'}
    return StreamingHttpResponse(lines, content_type=MEDIA[form], headers=headers)


def _cell(value: Any) -> Any:
    return orjson.dumps(value).decode() if isinstance(value, dict | list) else value
