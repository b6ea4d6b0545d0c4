"""Usage exports of providers as lines: day, model, cost and tokens. Pure, no Django.

A form is known by its columns (November 2026). OpenAI has costs and completions usage: CSV of the dashboard, JSON of
``/v1/organization/costs`` and ``/v1/organization/usage/completions``. Anthropic has cost and tokens: CSV of the
console, JSON of ``cost_report`` and ``usage_report/messages``. OpenRouter has its activity: CSV, and JSON of
``/api/v1/activity``. Any other table needs a day, a model, and a cost or tokens under their usual names.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from agentcore_site.lib.errors import TooLarge
from agentcore_site.lib.json_values import most_values
from agentcore_site.lib.text_uploads import file_text, refused

MAX_BYTES: Final = 16 * 1024 * 1024
MAX_LINES: Final = 200_000
MAX_VALUES: Final = 4_000_000  # of JSON, before it is parsed
MAX_DAYS: Final = 366
MOST: Final = 10**9  # dollars of a line
NAMED: Final = 5  # lines that are wrong, in a message

DAYS: Final = (
    *("usage_date_utc", "start_time_iso", "starting_at", "date", "day", "usage_date", "created_at", "start_time"),
    *("timestamp", "time", "created", "bucket_start_time", "date_utc"),
)
MODELS: Final = ("model_version", "model", "model_permaslug", "model_name", "model_id", "line_item", "deployment")
COSTS: Final = (
    *("cost_usd", "amount_value", "cost_total", "cost", "total_cost", "cost_in_usd", "usage", "amount", "amount_usd"),
    *("spend", "total", "total_usd", "usd"),
)
INPUTS: Final = ("input_tokens", "prompt_tokens", "tokens_prompt", "usage_input_tokens", "tokens_in")
OUTPUTS: Final = ("output_tokens", "completion_tokens", "tokens_completion", "usage_output_tokens", "tokens_out")
# Anthropic counts what went through the cache apart; here it is part of the prompt.
PARTS_OF_INPUT: Final = (
    *("usage_input_tokens_no_cache", "usage_input_tokens_cache_write_5m", "usage_input_tokens_cache_write_1h"),
    *("usage_input_tokens_cache_write", "usage_input_tokens_cache_read", "uncached_input_tokens"),
    *("cache_creation_ephemeral_5m_input_tokens", "cache_creation_ephemeral_1h_input_tokens"),
    "cache_read_input_tokens",
)
_APART: Final = frozenset(("usage_input_tokens_no_cache", "uncached_input_tokens"))
_THOUSANDS: Final = re.compile(r"-?\d{1,3}(,\d{3})+(\.\d*)?")
_NUMBER: Final = re.compile(r"-?\d{1,15}(\.\d{0,30})?([eE][-+]?\d{1,2})?")


@dataclass(frozen=True, slots=True)
class UsageLine:
    """A line of an export. ``at``: its moment, where it is more exact than a day. None: the file does not say."""

    day: date
    at: datetime | None
    model: str
    dollars: Decimal | None
    input_tokens: int | None
    output_tokens: int | None


@dataclass(frozen=True, slots=True)
class UsageFile:
    """``columns``: those that were taken, by their use. ``notes``: sentences on what the file leaves out."""

    lines: list[UsageLine]
    columns: dict[str, str]
    notes: list[str]

    @property
    def has_costs(self) -> bool:
        return any(line.dollars is not None for line in self.lines)

    @property
    def has_tokens(self) -> bool:
        return any(line.input_tokens is not None or line.output_tokens is not None for line in self.lines)


def read_usage(content: bytes) -> UsageFile:
    """The lines of an export.

    Raises:
        TooLarge: more than 16 MB, 200,000 lines, or 366 days.
        Invalid: it is neither a table nor JSON, a column is missing, or lines are wrong; the first are named.
    """
    if len(content) > MAX_BYTES:
        raise TooLarge(f"The file has {len(content) / 2**20:.0f} MB; at most {MAX_BYTES // 2**20} MB are taken.")
    if content[:2] in (b"PK", b"\x1f\x8b"):
        raise refused("The file is packed, or a workbook of Excel. Unpack it, or save it as CSV.")
    text = file_text(content)
    notes: list[str] = []
    rows = list(_rows(text, notes))
    if not rows:
        raise refused("The file has no line of usage.")
    columns = _columns(rows)
    lines = _lines(rows, columns, notes)
    if not lines:
        raise refused("No line of the file has a cost or tokens.")
    first, last = min(line.day for line in lines), max(line.day for line in lines)
    if (last - first).days >= MAX_DAYS:
        raise TooLarge(
            f"The file goes from {first} to {last}; at most {MAX_DAYS} days are compared. Export fewer days."
        )
    return UsageFile(lines, columns, notes)


def joined(files: Sequence[UsageFile]) -> UsageFile:
    """Files of the same days as one: some providers have costs and tokens in a file each.

    Raises:
        Invalid: two files say the same, so that it would count twice.
    """
    for has, what in (("has_costs", "costs"), ("has_tokens", "tokens")):
        if sum(getattr(one, has) for one in files) > 1:
            raise refused(f"Two files have {what}, which would count twice. Give one file with costs, one with tokens.")
    return UsageFile(
        [line for one in files for line in one.lines],
        {use: name for one in files for use, name in one.columns.items()},
        [note for one in files for note in one.notes],
    )


# -- rows --------------------------------------------------------------------------------------------------------------


def _rows(text: str, notes: list[str]) -> Iterator[dict[str, Any]]:
    """Rows with the names of their columns in one spelling."""
    start = text.lstrip()[:1]
    source = _from_json(_parsed(text), notes) if start in ("{", "[") else _from_table(text)
    for number, row in enumerate(source, start=1):
        if number > MAX_LINES:
            raise TooLarge(f"The file has more than {MAX_LINES:,} lines. Export fewer days.")
        yield row


def _spelled(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.casefold()).strip("_")


def _from_table(text: str) -> Iterator[dict[str, Any]]:
    head = text.split("\n", 1)[0]
    separator = max(",;\t", key=head.count)
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator)
    try:
        names = [_spelled(name or "") for name in reader.fieldnames or ()]
        if len(names) < 2:
            raise refused("Line 1 must name the columns, separated by commas, semicolons or tabs.")
        for row in reader:
            if None in row:
                raise refused(f"Line {reader.line_num} has more columns than line 1.")
            yield {"": f"Line {reader.line_num}"} | dict(zip(names, row.values(), strict=True))
    except csv.Error as error:
        raise refused(f"Line {reader.line_num} is not CSV: {error}.") from error


def _parsed(text: str) -> Any:
    """The value of a JSON text, or the list of those of JSON Lines."""
    if most_values(text.encode()) > MAX_VALUES:
        raise TooLarge(f"The file may have more than {MAX_VALUES:,} values. Export fewer days.")
    try:
        return json.loads(text, parse_float=Decimal)
    except json.JSONDecodeError as error:
        problem = error
    except (ValueError, RecursionError):
        raise refused("The file is not JSON that can be read.") from None
    try:
        return [json.loads(line, parse_float=Decimal) for line in text.splitlines() if line.strip()]
    except (ValueError, RecursionError):
        message = f"Line {problem.lineno} is not JSON from its character {problem.colno} on."
        raise refused(message) from None


def _from_json(value: Any, notes: list[str], depth: int = 0) -> Iterator[dict[str, Any]]:
    """Results of buckets, pages of an API, or plain objects."""
    if depth > 4:
        raise refused("The file is nested deeper than usage exports are.")
    if isinstance(value, Mapping) and value.get("has_more") is True:
        notes.append("The file says that further pages follow; days that it leaves out are in the ledger only.")
    for one in value if isinstance(value, list) else [value]:
        if not isinstance(one, Mapping):
            raise refused("Each entry of the file must be an object with a day, a model and a cost.")
        inner = one.get("data") if isinstance(one.get("data"), list) else None
        results = one.get("results") if isinstance(one.get("results"), list) else None
        if inner is not None:
            yield from _from_json(inner, notes, depth + 1)
        elif results is not None:
            around = _flat({name: part for name, part in one.items() if name not in ("results", "object")})
            for result in results:
                if not isinstance(result, Mapping):
                    raise refused("Each result of the file must be an object with a model and a cost.")
                yield _in_dollars(around | _flat(result))
        else:
            yield _flat(one)


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Members of objects within the row get the name of their object before theirs."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            found |= {f"{_spelled(str(name))}_{_spelled(str(part))}": one for part, one in value.items()}
        else:
            found[_spelled(str(name))] = value
    return found


def _in_dollars(row: dict[str, Any]) -> dict[str, Any]:
    """Anthropic's ``cost_report`` has amounts in cents, as text."""
    if "starting_at" in row and isinstance(row.get("amount"), str):
        number = _number(row["amount"])
        row = {**row, "amount": None if number is None else number / 100}
    return row


# -- columns and cells -------------------------------------------------------------------------------------------------


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The column of each use: "day", "model", "cost", "prompt tokens" and "answer tokens"; those that are there."""
    names = {name for row in rows for name in row if name}
    uses = (("day", DAYS), ("model", MODELS), ("cost", COSTS), ("prompt tokens", INPUTS), ("answer tokens", OUTPUTS))
    found = {use: name for use, known in uses if (name := next((one for one in known if one in names), ""))}
    if names & _APART:
        found["prompt tokens"] = ", ".join(name for name in PARTS_OF_INPUT if name in names)
    listed = ", ".join(sorted(names))[:300]
    if "day" not in found:
        raise refused(f"No column has the day. Name it one of {', '.join(DAYS[3:6])}. Columns: {listed}.")
    if not found.keys() & {"cost", "prompt tokens", "answer tokens"}:
        raise refused(
            f"No column has a cost or tokens. Name them cost, input_tokens and output_tokens. Columns: {listed}."
        )
    return found


def _lines(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], notes: list[str]) -> list[UsageLine]:
    """Raises Invalid: cells can't be read; the first lines are named."""
    lines, wrong, totals = [], [], 0
    for number, row in enumerate(rows, start=1):
        if str(row.get(columns["day"]) or "").strip().casefold() in ("total", "totals", "sum", ""):
            totals += 1
            continue
        try:
            line = _line(row, columns)
        except ValueError as error:
            wrong.append(f"{row.get('') or f'Entry {number}'}: {error}")
            continue
        if line is not None:
            lines.append(line)
    if wrong:
        more = f" {len(wrong) - NAMED:,} more are wrong." if len(wrong) > NAMED else ""
        raise refused(" ".join(wrong[:NAMED]) + more)
    if totals:
        notes.append(f"{totals:,} line{'s' if totals > 1 else ''} without a day left out, as sums of others.")
    return lines


def _line(row: Mapping[str, Any], columns: Mapping[str, str]) -> UsageLine | None:
    """None: the row has neither cost nor tokens. Raises ValueError with the reason."""
    dollars = _cell(row, columns.get("cost", ""))
    inputs = [_cell(row, name) for name in columns.get("prompt tokens", "").split(", ")]
    outputs = _cell(row, columns.get("answer tokens", ""))
    if dollars is None and outputs is None and all(one is None for one in inputs):
        return None
    currency = str(row.get("amount_currency") or row.get("currency") or "usd").strip()
    if currency.casefold() != "usd":
        raise ValueError(f"the amount is in {currency[:10]!r}; the ledger is in dollars.")
    day, at = _moment(row.get(columns["day"]))
    known = [one for one in inputs if one is not None]
    return UsageLine(
        day,
        at,
        _model(row.get(columns.get("model", ""))),
        dollars,
        _whole(sum(known)) if known else None,
        _whole(outputs),
    )


def _cell(row: Mapping[str, Any], name: str) -> Decimal | None:
    value = row.get(name) if name else None
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    number = _number(value)
    if number is None or abs(number) > (MOST if "token" not in name else 10**15):
        raise ValueError(f"{name} is {str(value)[:30]!r}, not a number such as 0.0123.")
    return number


def _number(value: Any) -> Decimal | None:
    if isinstance(value, bool):
        return None
    text = str(value).strip().removeprefix("$").strip()
    if _THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    if not _NUMBER.fullmatch(text):
        return None
    try:
        return Decimal(text)
    except InvalidOperation:
        return None


def _whole(number: Decimal | int | None) -> int | None:
    return None if number is None else int(number)


def _moment(value: Any) -> tuple[date, datetime | None]:
    """The day of a cell, and its moment if it has a time that is no midnight. Raises ValueError."""
    text = str(value).strip()
    try:
        if re.fullmatch(r"\d{9,10}(\.\d+)?", text):
            at = datetime.fromtimestamp(int(float(text)), UTC)
        elif re.fullmatch(r"\d{12,13}", text):
            at = datetime.fromtimestamp(int(text) // 1000, UTC)
        elif re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
            at = datetime.fromisoformat(text).replace(tzinfo=UTC)
        else:
            at = datetime.fromisoformat(text.removesuffix(" UTC").replace("/", "-"))
            at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{text[:30]!r} is no day; write it as 2026-11-27.") from None
    if not 2000 <= at.year < 2200:
        raise ValueError(f"{text[:30]!r} is no day from 2000 to 2199.")
    exact = (at.hour, at.minute, at.second, at.microsecond) != (0, 0, 0, 0)
    return at.date(), at if exact else None


def _model(value: Any) -> str:
    """The model of a cell; of OpenAI's line items what is before the comma: "gpt-4o-2024-08-06, cached input"."""
    return str(value or "").split(", ", 1)[0].strip().casefold()[:200]
