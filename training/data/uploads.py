"""Dataset files from people, read (``tables``) and mapped (``mapping``), refused with the place of what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from agentcore_site.lib.errors import Invalid, TooLarge
from agentcore_site.lib.storable import unstorable
from agentcore_site.lib.text_uploads import refused
from training.config.validation import MAX_QUERIES, ConfigError, parse_queries
from training.data.mapping import (
    ColumnMapping,
    conversations_in,
    graded_by,
    guessed,
    images_asked,
    mapped,
    never_right,
    written_by_python,
)
from training.data.tables import MAX_BYTES, RowTable, read_table

__all__ = ["MAX_BYTES", "Preview", "clean_rows", "preview", "read_rows", "shown_cell"]

SHOWN: Final = 5  # rows of a preview, and faults that a message names
CELL: Final = 200  # characters


@dataclass(frozen=True, slots=True)
class Preview:
    """A file before it becomes a dataset. ``fault``: the reason why it can't, under this mapping."""

    columns: list[str]
    mapping: ColumnMapping
    first: list[dict[str, Any]]
    rows: list[dict[str, Any]]
    size: int
    graders: list[tuple[str, str, int]]
    conversations: int
    images: int
    fault: str = ""


def read_rows(filename: str, content: bytes, mapping: ColumnMapping | None = None) -> list[dict[str, Any]]:
    """The cleaned rows of a file (JSONL, JSON, CSV, TSV, Parquet, each also in gzip).

    A row has "query", "expected_outcome" and "metadata", or the columns that ``mapping`` names; without one it is
    guessed. Every other column becomes metadata.

    Raises:
        TooLarge: more than 64 MB or 10,000 queries.
        Invalid: the first rows that are wrong, with their numbers.
    """
    table = read_table(filename, content)
    return _rows_of(table, mapping)


def preview(filename: str, content: bytes, mapping: ColumnMapping | None = None) -> Preview:
    """The columns and first rows of a file, and what it becomes under a mapping.

    Raises:
        Invalid, TooLarge: the file can't be read.
    """
    table = read_table(filename, content)
    columns = table.columns
    chosen = mapping or guessed(columns, table.rows) or ColumnMapping("")
    rows, fault = [], ""
    try:
        rows = _rows_of(table, chosen)
    except (Invalid, TooLarge) as error:
        fault = error.message
    return Preview(
        columns,
        chosen,
        table.rows[:SHOWN],
        rows[:SHOWN],
        len(table.rows),
        graded_by(rows),
        conversations_in(rows),
        images_asked(rows),
        fault,
    )


def shown_cell(value: Any) -> str:
    """The beginning of a cell, for people."""
    text = value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= CELL else f"{text[:CELL]}…"


def clean_rows(rows: list[Any]) -> list[dict[str, Any]]:
    """Rows from any interface, cleaned.

    Raises:
        TooLarge, Invalid: as for ``read_rows``.
    """
    if len(rows) > MAX_QUERIES:
        raise TooLarge(f"{len(rows):,} queries; at most {MAX_QUERIES:,} are taken. Split the dataset.")
    for number, row in enumerate(rows, start=1):
        if reason := unstorable(row):
            raise refused(f"Row {number} can't be stored: {reason}.")
    try:
        clean = parse_queries(rows)
    except ConfigError as error:
        raise Invalid(str(error), fields={one.field: one.message for one in error.errors}) from error
    _refuse_where(never_right, clean)
    return clean


def _refuse_where(reason_of: Callable[[Mapping[str, Any]], str], rows: list[dict[str, Any]]) -> None:
    """Raises Invalid with the first rows that there is a reason against."""
    wrong = [f"Row {number}: {reason}" for number, row in enumerate(rows, start=1) if (reason := reason_of(row))]
    if wrong:
        more = f" {len(wrong) - SHOWN:,} more rows are like that." if len(wrong) > SHOWN else ""
        raise refused(" ".join(wrong[:SHOWN]) + more)


def _rows_of(table: RowTable, mapping: ColumnMapping | None) -> list[dict[str, Any]]:
    rows = clean_rows(_mapped(table, mapping))
    if table.flat:
        _refuse_where(written_by_python, rows)
    return rows


def _mapped(table: RowTable, mapping: ColumnMapping | None) -> list[Any]:
    columns = table.columns
    if not table.rows:
        return []
    chosen = mapping or guessed(columns, table.rows)
    if chosen is None or not chosen.query:
        raise refused(
            f"No column is named like a query. Columns: {', '.join(columns)[:300]}. Choose the column of the query and"
            " the one of the answer, or name them query and expected_outcome."
        )
    if chosen.ours and not table.flat and all(isinstance(row.get("query"), str) for row in table.rows):
        return list(table.rows)  # of our own form nothing is dropped in silence
    return mapped(table, chosen)
