"""Writes traces into the database, many at a time, after their answers."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final
from uuid import UUID

import orjson
from django.db import connection, transaction
from django.utils.dateparse import parse_datetime

from agentcore_site.encryption.columns import Sealer
from agentcore_site.lib.database import trouble_in
from agentcore_site.lib.error_metrics import errors
from agentcore_site.lib.key_errors import KeyUnavailable
from agentcore_site.lib.row_scope import everything
from evaluation.serving.models import ArmName, CanaryObservation, ProductionTrace, TraceStatus
from evaluation.serving.traces.journal import Journal, Segment
from experiences.agents.consent import consent_withdrawn

log = logging.getLogger(__name__)

LINGER: Final = 0.1  # seconds that a trace waits for company
BATCH: Final = 500
TABLE: Final = ProductionTrace._meta.db_table
AGAIN: Final = 1.0  # seconds between tries while the database is away
# Columns of our own making: what a trace that can't be stored otherwise is stored with.
OURS: Final = (
    "id", "organization_id", "agent_id", "release_id", "deployment_id", "arm", "share", "key", "key_id", "model",
    "endpoint", "streamed", "status", "http_status", "hold", "cost_micros", "duration_ms", "attempts", "created_at",
)  # fmt: skip
WORDS: Final = ("metadata", "request", "response", "sampled")
UUIDS: Final = ("id", "agent_id", "organization_id", "release_id", "deployment_id", "key_id")


@dataclass(frozen=True, slots=True)
class PendingTrace:
    """A trace as its journal has it (``row``: columns as JSON), and where it was begun there."""

    row: Mapping[str, Any]
    segment: Segment


class TraceWriter:
    """A thread that writes traces in batches. What the database refuses is logged, and stays in the journal."""

    def __init__(
        self, journal: Journal, *, linger: float = LINGER, written: Callable[[Mapping[str, Any]], None] | None = None
    ) -> None:
        """``written`` receives the columns of each stored trace, as JSON."""
        self._journal, self._linger, self._written = journal, linger, written
        self._arrived: queue.SimpleQueue[PendingTrace | None] = queue.SimpleQueue()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None

    def put(self, trace: PendingTrace) -> None:
        with self._guard:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="trace-writer", daemon=True)
                self._thread.start()
        self._arrived.put(trace)

    def close(self, timeout: float = 10.0) -> None:
        """Writes what is left, for at most ``timeout`` seconds; what is not written then is in the journal."""
        thread = self._thread
        if thread is not None:
            self._arrived.put(None)
            thread.join(timeout)

    @everything()
    def _run(self) -> None:
        try:
            while True:
                batch = self._gather()
                self._write([one for one in batch if one is not None])
                if None in batch:
                    return
        finally:
            connection.close()

    def _gather(self) -> list[PendingTrace | None]:
        found = [self._arrived.get()]
        if found[0] is not None:
            time.sleep(self._linger)  # and is not woken by each that comes: the event loop would wait for it every time
        while found[-1] is not None and len(found) < BATCH:
            try:
                found.append(self._arrived.get_nowait())
            except queue.Empty:
                break
        return found

    def _write(self, batch: Sequence[PendingTrace]) -> None:
        while batch:
            try:
                refused = traces_store([trace.row for trace in batch])
            except Exception as error:  # the database or a key is away
                log.warning("%d traces wait: %s", len(batch), error)
                connection.close()
                time.sleep(AGAIN)
                continue
            for one in batch:
                if one.row["id"] not in refused:  # a refused one stays in the journal
                    self._journal.done(one.segment)
                    if self._written is not None:
                        self._written(one.row)
            return


def traces_store(rows: Sequence[Mapping[str, Any]]) -> set[str]:
    """Stores traces, one by one where a batch is refused, so that no trace keeps others back. A refused trace is stored
    with its costs and without its content. Returns the ids of those that are refused even then.

    Raises:
        django.db.Error, KeyUnavailable: the database or a key is away.
    """
    try:
        traces_write(rows)
    except Exception as error:
        if is_away(error):
            raise
        log.exception("a batch of %d traces was refused", len(rows))
        return {row["id"] for row in rows if not _is_stored(row)}
    return set()


def _is_stored(row: Mapping[str, Any]) -> bool:
    plain = {name: row[name] for name in OURS if name in row}
    plain |= {"session": str(row["id"]), "safety": None, "error": "Its content could not be stored."}
    for columns in (row, plain):
        try:
            traces_write([columns])
        except Exception as error:
            if is_away(error):
                raise
            log.exception("trace %s was refused", row["id"])
        else:
            return True
    errors.labels("trace_refused", "gateway").inc()
    return False


def is_away(error: Exception) -> bool:
    """The database or a key is away: the same traces may be taken later."""
    return isinstance(error, KeyUnavailable) or trouble_in(error) is not None


def traces_write(rows: Sequence[Mapping[str, Any]]) -> None:
    """Stores traces by their columns as JSON; one that is there already stays. The first trace of a session in a
    deployment is its observation as well.

    PostgreSQL reads the JSON: model instances would take as much of the processor as the answers do, in their process.
    """
    observed = [_observation(_values(row)) for row in rows if _counts(row)]
    insert, defaults = _insert()
    with transaction.atomic():
        rows = _recorded(rows)
        sealers = {owner: Sealer(UUID(owner)) for owner in sorted({str(row["organization_id"]) for row in rows})}
        with connection.cursor() as cursor:
            given = (_sealed({**defaults, **row}, sealers) for row in rows)
            cursor.execute(insert, [orjson.dumps(list(given)).decode()])
        CanaryObservation.objects.bulk_create(observed, ignore_conflicts=True)


def _recorded(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The rows; without words where an agent's consent was taken back while it answered."""
    silent = consent_withdrawn({row["agent_id"] for row in rows if row.get("agent_id")})
    return [
        {name: value for name, value in row.items() if name not in WORDS} | {"safety": None}
        if row.get("agent_id") in silent
        else row
        for row in rows
    ]


def _sealed(row: dict[str, Any], sealers: Mapping[str, Sealer]) -> dict[str, Any]:
    sealer, id = sealers[str(row["organization_id"])], row["id"]
    row["sampled"] = sealer.text(TABLE, "sampled", id, row["sampled"])
    if sealer.key is not None:
        for column in ("request", "response"):
            row[column] = orjson.Fragment(sealer.json(TABLE, column, id, orjson.dumps(row[column])))
    return row


@cache
def _insert() -> tuple[str, Mapping[str, Any]]:
    """The statement, and what a column has that a row does not name."""
    table, fields = TABLE, ProductionTrace._meta.concrete_fields
    columns = ", ".join(field.attname for field in fields)
    given = f"jsonb_populate_recordset(NULL::{table}, %s::jsonb)"
    defaults = {
        field.attname: field.get_default() for field in fields if not field.primary_key and field.name != "created_at"
    }
    return f"INSERT INTO {table} ({columns}) SELECT {columns} FROM {given} ON CONFLICT DO NOTHING", defaults  # noqa: S608


def _values(row: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(row)
    for name in UUIDS:
        found[name] = UUID(found[name]) if found.get(name) else None
    found["created_at"] = parse_datetime(found["created_at"])
    return found


def _counts(row: Mapping[str, Any]) -> bool:
    """Whether a trace says something of its arm: a session that was drawn, with an answer or the lack of one that is
    the model's."""
    share = row.get("share")
    drawn = share is not None and 0 < share <= 1  # 1: after the switch of a blue-green one
    return drawn and row["arm"] in (ArmName.NEW, ArmName.CURRENT) and row["status"] != TraceStatus.INTERRUPTED


def _observation(values: Mapping[str, Any]) -> CanaryObservation:
    return CanaryObservation(
        deployment_id=values["deployment_id"],
        session=values["session"] or str(values["id"]),
        trace_id=values["id"],
        new=values["arm"] == ArmName.NEW,
        share=values["share"],
        failed=values["status"] != TraceStatus.OK,
        safety=values["safety"],
        cost_micros=values["cost_micros"],
        duration_ms=values["duration_ms"],
        at=values["created_at"],
    )
