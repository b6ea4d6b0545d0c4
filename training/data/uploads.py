"""Dataset files from people: JSONL or CSV, refused with the number of the line that is wrong."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from agentcore_site.lib.errors import Invalid, TooLarge
from agentcore_site.lib.storable import unstorable
from agentcore_site.lib.text_uploads import file_text, jsonl_rows, refused
from training.config.validation import MAX_QUERIES, ConfigError, parse_queries, row_problem

MAX_BYTES = 64 * 1024 * 1024
LIKE = '{"query": "...", "expected_outcome": {...}}'


def read_rows(filename: str, content: bytes) -> list[dict[str, Any]]:
    """The cleaned rows of a ``.jsonl`` or ``.csv`` file.

    A JSONL line is ``{"query": "...", "expected_outcome": {...}, "metadata": {...}}``. A CSV needs the columns
    ``query`` and ``expected_outcome`` (an answer, or a JSON object); every other column becomes metadata.

    Raises:
        TooLarge: more than 64 MB or 10,000 queries.
        Invalid: the first lines that are wrong, with their numbers.
    """
    if len(content) > MAX_BYTES:
        raise TooLarge(f"The file has {len(content) / 2**20:.0f} MB; at most {MAX_BYTES // 2**20} MB are taken.")
    text = file_text(content)
    rows = _csv(text) if filename.lower().endswith(".csv") else jsonl_rows(text, like=LIKE, fault=row_problem)
    return clean_rows(rows)


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
        return parse_queries(rows)
    except ConfigError as error:
        raise Invalid(str(error), fields={one.field: one.message for one in error.errors}) from error


def _csv(text: str) -> list[dict[str, Any]]:
    reader = csv.DictReader(io.StringIO(text))
    try:
        return _csv_rows(reader)
    except csv.Error as error:  # a NUL, or a cell beyond the reader's limit
        raise refused(f"Line {reader.line_num} is not CSV: {error}.") from error


def _csv_rows(reader: csv.DictReader[str]) -> list[dict[str, Any]]:
    if not reader.fieldnames or not {"query", "expected_outcome"} <= set(reader.fieldnames):
        raise refused("Line 1 must name the columns query and expected_outcome.")
    rows = []
    for row in reader:
        if None in row or None in row.values():
            raise refused(f"Line {reader.line_num} has another number of columns than line 1.")
        metadata = {name: value for name, value in row.items() if name not in {"query", "expected_outcome"} and value}
        rows.append(
            {"query": row["query"], "expected_outcome": _expected(row["expected_outcome"]), "metadata": metadata}
        )
    return rows


def _expected(value: str) -> dict[str, Any]:
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        parsed = None
    return parsed if isinstance(parsed, dict) else {"answer": value}
