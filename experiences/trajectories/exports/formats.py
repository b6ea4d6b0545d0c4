"""The formats of an export, each a writer that takes rows and gives bytes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, Protocol

import orjson

from agentcore_site.lib.prefetch import prefetch
from agentcore_site.lib.spreadsheets import csv_line
from experiences.trajectories.annotations.selectors import as_noted
from experiences.trajectories.exports.conversations import Rewarded, dpo_lines, sft_lines
from experiences.trajectories.exports.rows import COLUMNS, ExportRow, jsonl_line, rows_exported
from experiences.trajectories.exports.selection import DPO, SFT, Export, ExportBatch, Mark

CSV_COLUMNS: Final = [n for n in COLUMNS if n not in ("steps", "step_advantages", "components", "evidence")] + ["steps"]


class Writer(Protocol):
    """Writes one file. ``write``: the bytes that rows add, and how many rows of the file they are."""

    def head(self) -> bytes: ...

    def write(self, rows: Sequence[ExportRow]) -> tuple[bytes, int]: ...

    def tail(self) -> bytes: ...


@dataclass(frozen=True)
class Lines:
    """A file of lines, each by itself."""

    of: Callable[[Sequence[ExportRow]], Iterator[bytes]]
    first: bytes = b""

    def head(self) -> bytes:
        return self.first

    def write(self, rows: Sequence[ExportRow]) -> tuple[bytes, int]:
        lines = list(self.of(rows))
        return b"".join(lines), len(lines)

    def tail(self) -> bytes:
        return b""


@dataclass(frozen=True)
class Format:
    """``title`` and ``says``: what it is, for people; ``media``: its type; ``name``: how a file is called. ``joined``:
    parts one after another are the file; else each part is a file of its own."""

    title: str
    media: str
    name: str
    says: str
    writer: Callable[[], Writer]
    joined: bool = True


def _jsonl(rows: Sequence[ExportRow]) -> Iterator[bytes]:
    """Lines of JSON. Annotations are in the line of their trajectory; a line without annotations has no such key."""
    for row, whole in zip(rows, rows_exported(rows), strict=True):
        if row.annotations:
            whole["annotations"] = [as_noted(annotation) for annotation in row.annotations]
        yield jsonl_line(whole)


def _csv(rows: Sequence[ExportRow]) -> Iterator[bytes]:
    for row in rows_exported(rows):
        row["steps"] = orjson.dumps(row["steps"]).decode()
        yield csv_line(row[name] for name in CSV_COLUMNS)


def _sft(rows: Sequence[ExportRow]) -> Iterator[bytes]:
    for row in rows:
        yield from sft_lines(orjson.loads(row.steps))


def _dpo(rows: Sequence[ExportRow]) -> Iterator[bytes]:
    """Of rows that are together by query: arms and lines of one query are groups of their own."""
    for _, near in groupby(rows, _query):
        groups: dict[tuple[Any, ...], list[Rewarded]] = {}
        for row in near:
            values = row.values
            group = groups.setdefault((values["purpose"], values["arm"], values["line"]), [])
            group.append(Rewarded(values["reward"], orjson.loads(row.steps)))
        for group in groups.values():
            yield from dpo_lines(group)


def _query(row: ExportRow) -> tuple[Any, ...]:
    return row.values["job_id"], row.values["iteration"], row.values["scenario"]


def _parquet() -> Writer:
    from experiences.trajectories.exports.parquet import ParquetLines  # loaded by those who write it alone

    return ParquetLines()


NDJSON: Final = "application/x-ndjson"
FORMATS: Final[dict[str, Format]] = {
    "jsonl": Format(
        "JSONL", NDJSON, "trajectories.jsonl", "everything that is known, one trajectory a line", lambda: Lines(_jsonl)
    ),
    "csv": Format(
        "CSV",
        "text/csv; charset=utf-8",
        "trajectories.csv",
        "for spreadsheets, with steps as JSON in one column",
        lambda: Lines(_csv, csv_line(CSV_COLUMNS)),
    ),
    "parquet": Format(
        "Parquet",
        "application/vnd.apache.parquet",
        "trajectories.parquet",
        "typed columns, for pandas, DuckDB and Spark",
        _parquet,
        joined=False,
    ),
    SFT: Format(
        "SFT", NDJSON, "sft.jsonl", "conversations for supervised fine-tuning, as TRL loads them", lambda: Lines(_sft)
    ),
    DPO: Format(
        "DPO",
        NDJSON,
        "dpo.jsonl",
        "pairs of conversations for preference tuning, as TRL loads them",
        lambda: Lines(_dpo),
    ),
}


def portions(
    export: Export, format: str, after: Mark | None = None
) -> Generator[tuple[list[ExportRow], Mark], None, None]:
    """The rows as a writer takes them, and the place behind them: of DPO the rollouts of a query are never torn."""
    waiting: list[tuple[ExportRow, ExportBatch]] = []
    for batch in prefetch(export.batches(after)):
        if format != DPO:
            yield batch.rows, batch.mark(batch.rows[-1])
            continue
        waiting += [(row, batch) for row in batch.rows]
        last = _query(batch.rows[-1])
        whole = next((n for n in range(len(waiting), 0, -1) if _query(waiting[n - 1][0]) != last), 0)
        if whole:
            row, of = waiting[whole - 1]
            yield [one for one, _ in waiting[:whole]], of.mark(row)
            waiting = waiting[whole:]
    if waiting:
        row, of = waiting[-1]
        yield [one for one, _ in waiting], of.mark(row)
