"""Lines of CSV that spreadsheets show and never run."""

from __future__ import annotations

import csv
import io
import string
import unicodedata
from collections.abc import Iterable
from datetime import date, datetime
from typing import Any, Final

# A cell that begins like this is a formula to a spreadsheet; a quote in front makes it text (OWASP, CSV injection).
FORMULA: Final = ("=", "+", "-", "@")
_INVISIBLE: Final = {"Cc", "Cf", "Zl", "Zp", "Zs"}  # ignored by spreadsheets at the beginning of a cell
# The beginning of nearly every text, or nothing: no formula. A test by Unicode category takes ten times as long.
_HARMLESS: Final = frozenset((*string.ascii_letters, *string.digits, "[", "{", ""))


def csv_line(cells: Iterable[Any]) -> bytes:
    """One line in UTF-8, as RFC 4180 has it. Moments are ISO 8601, None is empty, numbers stay numbers."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\r\n").writerow([_cell(cell) for cell in cells])
    return buffer.getvalue().encode("utf-8")


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return f"'{value}" if _runs(value) else value
    return value.isoformat() if isinstance(value, date | datetime) else value


def _runs(text: str) -> bool:
    """True if a spreadsheet may read it as a formula, full-width signs and leading white space included."""
    if text[:1] in _HARMLESS:
        return False
    seen = next((char for char in text if unicodedata.category(char) not in _INVISIBLE), "")
    return text.startswith(("\t", "\r")) or unicodedata.normalize("NFKC", seen).startswith(FORMULA)
