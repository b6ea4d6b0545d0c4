"""Files of rows from people: JSONL, JSON, CSV, TSV, Parquet, each also in gzip. A file is known by its content.

Bounds against files that grow: on what is unpacked, on rows, on values of JSON before they are parsed.
"""

from __future__ import annotations

import csv
import io
import json
import zlib
from dataclasses import dataclass
from typing import Any, Final

from agentcore_site.lib.errors import TooLarge
from agentcore_site.lib.json_values import most_values
from agentcore_site.lib.storable import MOST_VALUES
from agentcore_site.lib.text_uploads import file_text, jsonl_rows, refused
from training.config.validation import MAX_QUERIES

MAX_BYTES: Final = 64 * 1024 * 1024  # of a file, and of what it unpacks to
MAX_COLUMNS: Final = 200
BATCH: Final = 64  # rows of Parquet that are decoded at once
LIKE: Final = '{"query": "...", "expected_outcome": {...}}'


@dataclass(frozen=True, slots=True)
class RowTable:
    """Rows of a file as objects. ``flat``: cells are text (CSV, TSV)."""

    rows: list[dict[str, Any]]
    flat: bool

    @property
    def columns(self) -> list[str]:
        found: dict[str, None] = {}
        for row in self.rows:
            found |= dict.fromkeys(row)
            if len(found) > MAX_COLUMNS:
                raise refused(f"The file has more than {MAX_COLUMNS} columns.")
        return list(found)


def read_table(filename: str, content: bytes) -> RowTable:
    """The rows of a file, as they are in it.

    Raises:
        TooLarge: more than 64 MB, as it is or unpacked, or 10,000 rows.
        Invalid: the first lines that are wrong, with their numbers.
    """
    name = filename.lower()
    if len(content) > MAX_BYTES:
        raise TooLarge(f"The file has {len(content) / 2**20:.0f} MB; at most {MAX_BYTES // 2**20} MB are taken.")
    if content[:2] == b"\x1f\x8b":
        content, name = _unpacked(content), name.removesuffix(".gz")
    if content[:4] == b"PAR1":
        table = _parquet(content)
    elif content[:2] == b"PK":
        raise refused("The file is a ZIP archive or a workbook of Excel. Save it as CSV, or unpack it.")
    else:
        table = _text(name, file_text(content))
    if len(table.rows) > MAX_QUERIES:
        raise TooLarge(f"{len(table.rows):,} queries; at most {MAX_QUERIES:,} are taken. Split the dataset.")
    return table


def _unpacked(content: bytes) -> bytes:
    found, left = b"", content
    try:
        while left:  # a file may have several members
            unpacking = zlib.decompressobj(wbits=31)
            found += unpacking.decompress(left, MAX_BYTES + 1 - len(found))
            if len(found) > MAX_BYTES:
                raise TooLarge(f"The file unpacks to more than {MAX_BYTES // 2**20} MB.")
            if not unpacking.eof:
                raise refused("The file is gzip that was cut off. Upload it whole.")
            left = unpacking.unused_data.lstrip(b"\0")
    except zlib.error as error:
        raise refused("The file is not gzip that can be unpacked.") from error
    return found


def _text(name: str, text: str) -> RowTable:
    start = text.lstrip()[:1]
    of_excel = name.endswith(".txt") and start not in ("{", "[") and "\t" in text.split("\n", 1)[0]  # "Unicode text"
    if of_excel or name.endswith((".tsv", ".tab")):
        return _separated(text, "\t")
    if name.endswith(".csv"):
        return _separated(text, _separator(text))
    rows = _json(text, whole=start == "[") if start == "[" or (start == "{" and name.endswith(".json")) else None
    return RowTable(jsonl_rows(text, like=LIKE) if rows is None else rows, flat=False)


def _json(text: str, *, whole: bool) -> list[dict[str, Any]] | None:
    """The rows of a JSON array, or of an object. An object holds one list of objects ("data"), a list of cells for each
    column, or the only row. None: it is JSONL.

    Raises:
        Invalid: it is an array that can't be read.
    """
    if most_values(text.encode()) > MOST_VALUES:
        raise TooLarge(f"The file may have more than {MOST_VALUES:,} values. Split the dataset.")
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        if not whole or error.msg == "Extra data":
            return None
        raise refused(f"Line {error.lineno} is not JSON from its character {error.colno} on.") from error
    except (ValueError, RecursionError):
        raise refused("The file is not JSON that can be read.") from None
    if isinstance(value, dict):
        lists = [one for one in value.values() if isinstance(one, list)]
        inner = [one for one in lists if one and isinstance(one[0], dict)]
        if "query" not in value and len(inner) == 1 and not _said(inner[0]):
            value = inner[0]
        elif len(lists) == len(value) > 1 and not inner and len({len(one) for one in lists}) == 1:  # by columns
            value = [dict(zip(value, cells, strict=True)) for cells in zip(*lists, strict=True)]
        else:
            value = [value]
    for number, row in enumerate(value, start=1):
        if not isinstance(row, dict):
            raise refused(f"Row {number} must be an object like {LIKE}.")
    return list(value)


def _said(values: list[Any]) -> bool:
    """True for the messages of one conversation, false for rows."""
    return all(isinstance(one, dict) and ("role" in one or "from" in one) for one in values)


def _separator(text: str) -> str:
    """Comma, unless the first line has none and semicolons or tabs in their place."""
    head = text.split("\n", 1)[0]
    return next((one for one in (",", ";", "\t") if one in head), ",")


def _separated(text: str, separator: str) -> RowTable:
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator)
    rows: list[dict[str, Any]] = []
    try:
        columns = [name.strip() for name in reader.fieldnames or ()]
        if len(set(columns)) < len(columns) or not all(columns):
            raise refused("Line 1 must name each column once.")
        for row in reader:
            if None in row or None in row.values():
                raise refused(f"Line {reader.line_num} has another number of columns than line 1.")
            rows.append(dict(zip(columns, row.values(), strict=True)))
            if len(rows) > MAX_QUERIES:
                raise TooLarge(f"More than {MAX_QUERIES:,} queries; at most so many are taken. Split the dataset.")
    except csv.Error as error:  # a NUL, or a cell beyond the reader's limit
        raise refused(f"Line {reader.line_num} is not CSV: {error}.") from error
    return RowTable(rows, flat=True)


def _parquet(content: bytes) -> RowTable:
    """Read in batches: a dictionary of long texts would unpack to a thousand times its size."""
    import pyarrow as arrow  # a third of a second, for those who upload Parquet
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(io.BytesIO(content))
        if file.metadata.num_rows > MAX_QUERIES:
            raise TooLarge(f"{file.metadata.num_rows:,} queries; at most {MAX_QUERIES:,} are taken. Split the dataset.")
        if file.metadata.num_columns > MAX_COLUMNS * 10:
            raise refused(f"The file has more than {MAX_COLUMNS} columns.")
        rows: list[dict[str, Any]] = []
        taken = 0
        for batch in file.iter_batches(batch_size=BATCH):
            taken += batch.nbytes
            if taken > MAX_BYTES:
                raise TooLarge(f"The file unpacks to more than {MAX_BYTES // 2**20} MB.")
            rows += batch.to_pylist()
    except (arrow.ArrowException, OSError, ValueError, OverflowError) as error:
        raise refused(f"The file is not Parquet that can be read: {str(error)[:200]}") from error
    return RowTable([{name: _plain(value) for name, value in row.items()} for row in rows], flat=False)


def _plain(value: Any) -> Any:
    """A cell as JSON has it; what JSON has no word for (days, amounts, bytes) as text."""
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items() if one is not None}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
