"""Trajectories as Parquet (zstd): a row group has rows of one job. Rows come and go as CSV, as COPY writes and
reads it: text columns are never null there, and what is null has no quotes."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

# Of what comes: JSON, which is full of commas and quotes, needs none of its own.
DELIMITER, QUOTE = "\x1f", "\x01"
GROUP_ROWS: Final = 2_000
GROUP_BYTES: Final = 2**25  # of CSV, which is all that is held in memory
LEVEL: Final = 3
TEXT: Final = pa.string()
# Names and types are the format: a column that the table gets later is null in older files.
JSON: Final = ("components", "evidence", "steps")
KINDS: Final = (
    (TEXT, "id organization_id agent_id job_id purpose arm line query error policy_version model"),
    (TEXT, " ".join(JSON)),
    (pa.date32(), "month"),
    (pa.int16(), "n_steps"),
    (pa.int32(), "iteration scenario rollout tokens"),
    (pa.int64(), "cost_micros"),
    (pa.bool_(), "success truncated"),
    (pa.float64(), "outcome reward reward_before_ranking duration_ms"),
    (pa.timestamp("us", tz="UTC"), "created_at"),
)
SCHEMA: Final = pa.schema([(name, kind) for kind, names in KINDS for name in names.split()])
COLUMNS: Final = tuple(SCHEMA.names)
PLACE: Final = ["iteration", "scenario", "rollout", "id"]  # of a row in its job
REPEATED: Final = "month organization_id agent_id job_id purpose arm line policy_version model query components error"


# What COPY says of each row besides: its digest, and the number of its version. Neither goes into the file.
ASIDE: Final = ("digest", "version")


class RowsWritten(NamedTuple):
    """The number of a job's rows, the sums of their digests and versions as the database has them (None: they come
    from elsewhere), and the place of the last row in its job."""

    rows: int
    mark: int | None = None
    versions: int | None = None
    last: dict[str, Any] | None = None

    def plus(self, other: RowsWritten) -> RowsWritten:
        return RowsWritten(
            self.rows + other.rows, _sum(self.mark, other.mark), _sum(self.versions, other.versions), other.last
        )


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


class ArchiveWriter:
    """Writes a file; call ``close``."""

    def __init__(self, path: Path) -> None:
        self._writer = pq.ParquetWriter(
            path,
            SCHEMA,
            compression="zstd",
            compression_level=LEVEL,
            use_dictionary=REPEATED.split(),
            write_page_checksum=True,
        )
        self._beside = ThreadPoolExecutor(max_workers=1, thread_name_prefix="parquet")
        self.groups = 0
        self.first_at: datetime | None = None
        self.last_at: datetime | None = None

    def write(self, lines: Iterable[bytes | bytearray | memoryview]) -> RowsWritten:
        """Writes rows of one job, as many row groups as they take."""
        found = RowsWritten(0, 0, 0)
        written: deque[Future[RowsWritten]] = deque()
        for group in _grouped(lines):
            # Beside the database, which makes the next rows meanwhile.
            written.append(self._beside.submit(self._write_csv, group))
            if len(written) > 1:
                found = found.plus(written.popleft().result())
        for future in written:
            found = found.plus(future.result())
        return found

    def _write_csv(self, group: bytes) -> RowsWritten:
        table = _from_csv(group)
        mark, versions = (sum(table[name].to_pylist()) for name in ASIDE)
        self.write_table(table.select(COLUMNS))
        return RowsWritten(table.num_rows, mark, versions, table.select(PLACE).slice(table.num_rows - 1).to_pylist()[0])

    def write_table(self, table: pa.Table) -> None:
        """One row group, as it is."""
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        self.groups += 1
        times = pc.min_max(table["created_at"]).as_py()
        self.first_at = min(filter(None, (self.first_at, times["min"])), default=None)
        self.last_at = max(filter(None, (self.last_at, times["max"])), default=None)

    def close(self) -> None:
        self._beside.shutdown()
        self._writer.close()


def groups_read(file: IO[bytes], groups: Iterable[int] | None = None, **wanted: Any) -> Iterator[pa.Table]:
    """Row groups one after the other (all of them without ``groups``), of each only the rows whose columns have the
    ``wanted`` values. Every page's checksum is looked at."""
    with pq.ParquetFile(file, page_checksum_verification=True) as parquet:
        for number in range(parquet.num_row_groups) if groups is None else groups:
            table = parquet.read_row_group(number)
            for name, value in wanted.items():
                table = table.filter(pc.equal(table[name], value))
            yield table


def place_of(file: IO[bytes], trajectory_id: str) -> dict[str, Any] | None:
    """Job, iteration, scenario and row group of a trajectory; None if it is not in this file."""
    with pq.ParquetFile(file, page_checksum_verification=True) as parquet:
        for number in range(parquet.num_row_groups):
            place = pc.index(parquet.read_row_group(number, columns=["id"])["id"], trajectory_id).as_py()
            if place >= 0:
                names = ["job_id", "iteration", "scenario"]
                found = parquet.read_row_group(number, columns=names).slice(place, 1).to_pylist()[0]
                return {**found, "group": number}
    return None


def without_rows(
    table: pa.Table, words: Sequence[str], queries: Sequence[str], opened: Callable[[pa.Table], list[str]]
) -> pa.Table:
    """The rows that hold none of the words in any text (in JSON as it is written there), in any case, nor have one of
    the queries. ``opened`` reads steps that are encrypted."""
    rows = table
    table = table.set_column(table.schema.get_field_index("steps"), "steps", pa.array(opened(table), TEXT))
    gone = pc.is_in(table["query"], value_set=pa.array(queries, TEXT))
    for name in ("query", "error", "model", "steps", "evidence", "components"):
        for word in words:
            stored_word = json.dumps(word, ensure_ascii=False)[1:-1] if name in JSON else word
            gone = pc.or_(gone, pc.match_substring(table[name], stored_word, ignore_case=True))
    return rows.filter(pc.invert(gone))


def without_ids(table: pa.Table, ids: Iterable[str]) -> pa.Table:
    return table.filter(pc.invert(pc.is_in(table["id"], value_set=pa.array(list(ids), TEXT))))


def as_csv(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pa_csv.write_csv(table, sink, pa_csv.WriteOptions(include_header=False))
    return bytes(sink.getvalue())


def _grouped(lines: Iterable[bytes | bytearray | memoryview]) -> Iterator[bytes]:
    waiting: list[bytes | bytearray | memoryview] = []
    size = 0
    for line in lines:
        waiting.append(line)
        size += len(line)
        if len(waiting) >= GROUP_ROWS or size >= GROUP_BYTES:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)


def _from_csv(data: bytes) -> pa.Table:
    return pa_csv.read_csv(
        pa.BufferReader(data),
        read_options=pa_csv.ReadOptions(column_names=[*COLUMNS, *ASIDE], block_size=len(data) + 1, use_threads=False),
        parse_options=pa_csv.ParseOptions(delimiter=DELIMITER, quote_char=QUOTE, newlines_in_values=True),
        convert_options=pa_csv.ConvertOptions(
            column_types={**dict(zip(SCHEMA.names, SCHEMA.types, strict=True)), **dict.fromkeys(ASIDE, pa.int64())},
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            true_values=["t"],
            false_values=["f"],
        ),
    )
