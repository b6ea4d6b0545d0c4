"""Evidence that two sets of rows are equal: their number and the sum of their digests. The database has the same
function, ``experiences_trajectory_marks``."""

from __future__ import annotations

import hashlib
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from experiences.trajectories.archive.files import groups_read

SAID: Final = (
    *("id", "month", "purpose", "arm", "line", "iteration", "scenario", "rollout", "query"),
    *("success", "n_steps", "truncated", "error", "tokens", "cost_micros", "policy_version", "model"),
    *("components", "evidence", "steps"),
)
BITS: Final = ("outcome", "reward", "reward_before_ranking", "duration_ms")


def _bits(name: str) -> str:
    return f"float8send(coalesce({name}, 'NaN'))"


class Marked(NamedTuple):
    """Number of rows of a job, and the sum of their digests."""

    rows: int
    mark: int

    def plus(self, other: Marked) -> Marked:
        return Marked(self.rows + other.rows, self.mark + other.mark)


NONE: Final = Marked(0, 0)

_SQL: Final = {"month": "month - date '1970-01-01'"}
# The digest of a row as the database works it out, of columns in which JSON is text: what COPY sends was turned into
# text once.
DIGEST: Final = (
    f"('x' || left(md5(convert_to(concat_ws('|', {', '.join(_SQL.get(name, name) for name in SAID)},"
    " reward IS NULL, reward_before_ranking IS NULL, (extract(epoch FROM created_at) * 1000000)::bigint), 'UTF8')"
    f" || {' || '.join(_bits(name) for name in BITS)}), 15))::bit(60)::bigint"
)


def file_marks(file: IO[bytes], check: Any) -> dict[tuple[uuid.UUID, uuid.UUID], Marked]:
    """By agent and job, of a whole file, in which a row group is of one job."""
    found: dict[tuple[uuid.UUID, uuid.UUID], Marked] = {}
    tables = groups_read(file)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="parquet") as beside:
        ahead = beside.submit(next, tables, None)
        while (table := ahead.result()) is not None:
            ahead = beside.submit(next, tables, None)  # read while this one is counted
            check()
            if not table.num_rows:
                continue
            if any(len(table[name].unique()) > 1 for name in ("agent_id", "job_id")):
                raise ValueError("a row group is of several jobs")
            key = uuid.UUID(table["agent_id"][0].as_py()), uuid.UUID(table["job_id"][0].as_py())
            found[key] = found.get(key, NONE).plus(Marked(table.num_rows, marked(table)))
    return found


def marked(table: pa.Table) -> int:
    """The sum of the rows' digests: 60 bits of MD5 each."""
    texts = [_text(table[name]) for name in SAID]
    texts += [_text(table[name].is_null()) for name in ("reward", "reward_before_ranking")]
    texts.append(_text(table["created_at"].cast(pa.int64())))
    lines = pa.concat_arrays(pc.binary_join_element_wise(*texts, "|").chunks)
    ends = np.frombuffer(lines.buffers()[1], np.int32)[lines.offset :].tolist()
    line_bytes = memoryview(lines.buffers()[2])
    numbers = [table[name].fill_null(float("nan")).to_numpy() for name in BITS]
    bits = memoryview(np.stack(numbers, axis=1).astype(">f8").tobytes())
    size = 8 * len(BITS)
    total = 0
    for row in range(table.num_rows):
        digest = hashlib.md5(line_bytes[ends[row] : ends[row + 1]], usedforsecurity=False)
        digest.update(bits[row * size : (row + 1) * size])
        total += int.from_bytes(digest.digest()[:8], "big") >> 4
    return total


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_boolean(column.type):
        return pc.if_else(column, "t", "f")
    if pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    return column if pa.types.is_string(column.type) else column.cast(pa.string())
