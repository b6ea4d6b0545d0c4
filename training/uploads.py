"""Dataset files from people: JSONL or CSV, refused with the number of the line that is wrong."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from agentcore_site.errors import Invalid, TooLarge
from agentcore_site.values import unstorable
from training.validation import MAX_QUERIES, ConfigError, parse_queries

MAX_BYTES = 64 * 1024 * 1024


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
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _wrong(f"The file is not UTF-8 text (byte {error.start}). Save it as UTF-8.") from error
    rows = _csv(text) if filename.lower().endswith(".csv") else _jsonl(text)
    return clean_rows(rows)


def clean_rows(rows: list[Any]) -> list[dict[str, Any]]:
    """Rows from any door, cleaned.

    Raises:
        TooLarge, Invalid: as for ``read_rows``.
    """
    if len(rows) > MAX_QUERIES:
        raise TooLarge(f"{len(rows):,} queries; at most {MAX_QUERIES:,} are taken. Split the dataset.")
    for number, row in enumerate(rows, start=1):
        if reason := unstorable(row):
            raise _wrong(f"Row {number} can't be stored: {reason}.")
    try:
        return parse_queries(rows)
    except ConfigError as error:
        raise Invalid(str(error), fields={one.field: one.message for one in error.errors}) from error


def _jsonl(text: str) -> list[Any]:
    rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            rows.append(json.loads(line))
        except (ValueError, RecursionError) as error:
            raise _wrong(f"Line {number} is not JSON: {error}.") from error
        if not isinstance(rows[-1], dict):
            raise _wrong(f'Line {number} must be an object like {{"query": "...", "expected_outcome": {{...}}}}.')
    return rows


def _csv(text: str) -> list[dict[str, Any]]:
    reader = csv.DictReader(io.StringIO(text))
    try:
        return _csv_rows(reader)
    except csv.Error as error:  # a NUL, or a cell beyond the reader's limit
        raise _wrong(f"Line {reader.line_num} is not CSV: {error}.") from error


def _csv_rows(reader: csv.DictReader[str]) -> list[dict[str, Any]]:
    if not reader.fieldnames or not {"query", "expected_outcome"} <= set(reader.fieldnames):
        raise _wrong("Line 1 must name the columns query and expected_outcome.")
    rows = []
    for row in reader:
        if None in row or None in row.values():
            raise _wrong(f"Line {reader.line_num} has another number of columns than line 1.")
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


def _wrong(message: str) -> Invalid:
    return Invalid(message, fields={"data": message})
