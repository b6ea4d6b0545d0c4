"""Exports that are answered at once: whole up to a limit, or as a stream in constant memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

from agentcore_site.lib.async_db import briefly
from agentcore_site.lib.errors import TooLarge
from experiences.trajectories.exports.formats import FORMATS, portions
from experiences.trajectories.exports.rows import rows_whole
from experiences.trajectories.exports.selection import Export

MAX_AT_ONCE: Final = 10_000
STREAM: Final = "Narrow the filters, or stream them: GET /api/v1/trajectories/export?format=jsonl."


def export_all(export: Export, *, limit: int | None = None) -> dict[str, Any]:
    """The rows as they are exported, and how many pass the filters in all.

    Raises:
        TooLarge: more than 10,000 would be answered at once.
    """
    if limit is not None and limit > MAX_AT_ONCE:
        raise TooLarge(f"limit is {limit:,}; at most {MAX_AT_ONCE:,} trajectories are answered at once. {STREAM}")
    total = export.count()
    if limit is None and total > MAX_AT_ONCE:
        raise TooLarge(f"{total:,} trajectories pass these filters; at most {MAX_AT_ONCE:,} are answered. {STREAM}")
    rows: list[dict[str, Any]] = []
    for batch in export.batches():
        rows += rows_whole(batch.rows if limit is None else batch.rows[: limit - len(rows)])
        if limit is not None and len(rows) >= limit:
            break
    return {"trajectories": rows, "total_count": total, "exported_count": len(rows)}


def pieces(export: Export, format: str) -> Iterator[bytes]:
    """The export as bytes, batch by batch; pieces may be empty."""
    writer = FORMATS[format].writer()
    yield writer.head()
    for rows, _ in portions(export, format):
        yield writer.write(rows)[0]
    yield writer.tail()


async def stream(export: Export, format: str) -> AsyncIterator[bytes]:
    """The same. Between two batches no connection to the database is held, so that a slow reader holds up no other. An
    async generator, because Django reads a sync one whole before the first byte."""
    waiting = pieces(export, format)
    while (piece := await _read(waiting)) is not None:
        if piece:
            yield piece


@briefly
def _read(waiting: Iterator[bytes]) -> bytes | None:
    """The next piece; None after the last one."""
    return next(waiting, None)
