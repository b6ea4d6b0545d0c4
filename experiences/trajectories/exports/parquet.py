"""Trajectories as Parquet: typed columns, JSON as text in ``steps``, ``components`` and ``evidence``. One row group is
in memory at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from experiences.trajectories.exports.rows import COLUMNS, ExportRow, rows_exported

GROUP_ROWS: Final = 5_000
GROUP_BYTES: Final = 8 * 2**20
KINDS: Final = (
    (pa.string(), "trajectory_id job_id agent_id purpose arm line query error policy_version model"),
    (pa.string(), "steps components evidence"),
    (pa.int32(), "iteration scenario rollout n_steps tokens"),
    (pa.bool_(), "success truncated"),
    (pa.float64(), "outcome reward reward_before_ranking normalized_reward advantage duration_ms cost_usd"),
    (pa.list_(pa.float64()), "step_advantages"),
    (pa.timestamp("us", tz="UTC"), "created_at"),
)
_KIND: Final = {name: kind for kind, names in KINDS for name in names.split()}
SCHEMA: Final = pa.schema([(name, _KIND[name]) for name in COLUMNS])
REPEATED: Final = "job_id agent_id purpose arm line policy_version model query components error"


class _Sink:
    """Bytes that were written and not taken yet."""

    closed = False

    def __init__(self) -> None:
        self._waiting: list[bytes] = []
        self._place = 0

    def write(self, data: Any) -> int:
        self._waiting.append(bytes(data))
        self._place += len(self._waiting[-1])
        return len(self._waiting[-1])

    def tell(self) -> int:
        return self._place

    def flush(self) -> None:
        """Nothing waits elsewhere."""

    def close(self) -> None:
        self.closed = True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def taken(self) -> bytes:
        data, self._waiting = b"".join(self._waiting), []
        return data


class ParquetLines:
    """Writes one file, piece by piece."""

    def __init__(self) -> None:
        self._sink = _Sink()
        self._writer = pq.ParquetWriter(
            pa.PythonFile(self._sink, mode="w"), SCHEMA, compression="zstd", use_dictionary=REPEATED.split()
        )
        self._waiting: list[pa.Table] = []

    def head(self) -> bytes:
        return b""

    def write(self, rows: Sequence[ExportRow]) -> tuple[bytes, int]:
        self._waiting.append(_table(rows))
        if sum(t.num_rows for t in self._waiting) >= GROUP_ROWS or sum(t.nbytes for t in self._waiting) >= GROUP_BYTES:
            self._write()
        return self._sink.taken(), len(rows)

    def tail(self) -> bytes:
        self._write()
        self._writer.close()
        return self._sink.taken()

    def _write(self) -> None:
        if self._waiting:
            table, self._waiting = pa.concat_tables(self._waiting), []
            self._writer.write_table(table, row_group_size=max(table.num_rows, 1))


def _table(rows: Sequence[ExportRow]) -> pa.Table:
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for row, whole in zip(rows, rows_exported(rows), strict=True):
        whole["steps"] = orjson.dumps(whole["steps"])
        whole["components"], whole["evidence"] = row.components, row.evidence
        for name in ("trajectory_id", "job_id", "agent_id"):
            whole[name] = str(whole[name])
        for name in COLUMNS:
            columns[name].append(whole[name])
    return pa.table([pa.array(columns[name], _KIND[name]) for name in COLUMNS], schema=SCHEMA)
