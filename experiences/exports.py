"""Trajectories out of the house: who may, what a row looks like, and streams that need constant memory (SPEC I3)."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

import orjson
from channels.db import database_sync_to_async
from django.db.models import QuerySet

from agentcore_site.audit.services import record
from agentcore_site.errors import TooLarge
from agentcore_site.rest.paging import keyset, values_at
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import current_organization, require
from budgets.money import dollars
from experiences.filters import trajectories_filtered
from experiences.models import TrajectoryRecord
from experiences.selectors import advantages_for, trajectories_visible

MAX_AT_ONCE: Final = 10_000
BATCH: Final = 500
CSV_COLUMNS: Final = (
    "trajectory_id job_id agent_id purpose arm line iteration scenario rollout query success outcome reward"
    " normalized_reward advantage n_steps truncated error tokens cost_usd duration_ms policy_version model created_at steps"
).split()
# Spreadsheets run cells that begin like this; a quote in front makes them text again.
FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def export_rows(actor: Actor, values: dict[str, Any], *, format: str) -> QuerySet[TrajectoryRecord]:
    """The rows of an export, in a stable order; the export is logged.

    Raises:
        Forbidden: neither role nor data permission allow it in any of the actor's organisations.
        Invalid, Missing: a filter is wrong.
    """
    allowed = [organization for organization in actor.organization_ids if actor.may("export", organization)]
    if not allowed:
        require(actor, "export", current_organization(actor))
    rows = trajectories_filtered(trajectories_visible(actor), actor, values)
    asked = {name: str(value) for name, value in values.items() if value is not None}
    for organization in {*rows_owners(actor, values)} & {*allowed} if values.get("job") else allowed:
        record(actor, "trajectories.exported", organization=organization, after={"format": format, "filters": asked})
    return rows.filter(organization_id__in=allowed)


def export_list(rows: QuerySet[TrajectoryRecord], *, limit: int | None = None) -> tuple[list[dict[str, Any]], int]:
    """(rows as they are exported, how many pass the filters in all).

    Raises:
        TooLarge: more than 10,000 would be answered at once.
    """
    if limit is not None and limit > MAX_AT_ONCE:
        raise TooLarge(f"limit is {limit:,}; at most {MAX_AT_ONCE:,} trajectories are answered at once. {STREAM}")
    total = rows.count()
    if limit is None and total > MAX_AT_ONCE:
        raise TooLarge(f"{total:,} trajectories pass these filters; at most {MAX_AT_ONCE:,} are answered. {STREAM}")
    found: list[dict[str, Any]] = []
    for batch in batches(rows, limit=limit):
        found.extend(as_exported(batch))
    return found, total


STREAM: Final = "Narrow the filters, or stream them: GET /api/v1/trajectories/export?format=jsonl."


def as_exported(rows: list[TrajectoryRecord]) -> Iterator[dict[str, Any]]:
    """Rows as programs read them, with what the update made of each. One query for all advantages."""
    advantages = advantages_for(rows)
    for row in rows:
        learned = advantages.get(row.id, {})
        yield {
            "trajectory_id": row.id,
            "job_id": row.job_id,
            "agent_id": row.agent_id,
            "purpose": row.purpose,
            "arm": row.arm,
            "line": row.line,
            "iteration": row.iteration,
            "scenario": row.scenario,
            "rollout": row.rollout,
            "query": row.query,
            "steps": [step_exported(step) for step in row.steps],
            "success": row.success,
            "outcome": row.outcome,
            "reward": row.reward,
            "normalized_reward": learned.get("normalized_reward"),
            "advantage": learned.get("advantage"),
            "step_advantages": learned.get("step_advantages"),
            "components": row.components,
            "evidence": row.evidence,
            "n_steps": row.n_steps,
            "truncated": row.truncated,
            "error": row.error,
            "tokens": row.tokens,
            "cost_usd": dollars(row.cost_micros),
            "duration_ms": row.duration_ms,
            "policy_version": row.policy_version,
            "model": row.model,
            "created_at": row.created_at.isoformat(),
        }


def step_exported(step: dict[str, Any]) -> dict[str, Any]:
    """A stored step with its time in words (ISO 8601) instead of seconds."""
    return step | {"timestamp": datetime.fromtimestamp(float(step.get("timestamp") or 0.0), UTC).isoformat()}


def batches(
    rows: QuerySet[TrajectoryRecord], *, limit: int | None = None, size: int = BATCH
) -> Iterator[list[TrajectoryRecord]]:
    """All rows in constant memory: by the place of the last one, never by offset."""
    last: list[Any] | None = None
    left = limit
    while left is None or left > 0:
        page = next_batch(rows, last, size if left is None else min(size, left))
        if not page:
            return
        yield page
        last = values_at(page[-1], order_of(rows))
        left = None if left is None else left - len(page)


def next_batch(rows: QuerySet[TrajectoryRecord], last: list[Any] | None, size: int) -> list[TrajectoryRecord]:
    names = order_of(rows)
    return list((rows if last is None else keyset(rows, names, last)).order_by(*names)[:size])


def order_of(rows: QuerySet[TrajectoryRecord]) -> tuple[str, ...]:
    """The order that an index serves: within a job as it was trained, else by time."""
    of_one_job = any(getattr(node.lhs, "target", None) is JOB_FIELD for node in _leaves(rows.query.where))
    return ("iteration", "scenario", "rollout", "id") if of_one_job else ("created_at", "id")


JOB_FIELD: Final = TrajectoryRecord._meta.get_field("job_id")


def _leaves(node: Any) -> Iterator[Any]:
    for child in getattr(node, "children", ()):
        if hasattr(child, "children"):
            yield from _leaves(child)
        elif hasattr(child, "lhs"):
            yield child


# -- streams ----------------------------------------------------------------------------------------------------------


async def stream(
    rows: QuerySet[TrajectoryRecord], format: str, *, done: Callable[[int], None] | None = None
) -> AsyncIterator[bytes]:
    """The export as bytes, batch by batch. Between two batches no connection to the database is held, so that a slow
    reader holds up nobody. ``done`` is told at the end how many rows went out, also when the reader went away."""
    write = WRITERS[format]
    last: list[Any] | None = None
    sent = 0
    try:
        if format == "csv":
            yield csv_line(CSV_COLUMNS)
        while True:
            page, lines = await _read(rows, last, write)
            if not page:
                return
            yield lines
            sent += len(page)
            last = values_at(page[-1], order_of(rows))
    finally:
        if done is not None:
            await database_sync_to_async(done)(sent)


@database_sync_to_async
def _read(
    rows: QuerySet[TrajectoryRecord], last: list[Any] | None, write: Callable[[dict[str, Any]], bytes]
) -> tuple[list[TrajectoryRecord], bytes]:
    page = next_batch(rows, last, BATCH)
    return page, b"".join(write(row) for row in as_exported(page))


def jsonl_line(row: dict[str, Any]) -> bytes:
    return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)


def csv_row(row: dict[str, Any]) -> bytes:
    cells = []
    for name in CSV_COLUMNS:
        value = row[name]
        if name == "steps":
            value = orjson.dumps(value).decode()
        elif isinstance(value, str) and value.startswith(FORMULA):
            value = f"'{value}"
        cells.append("" if value is None else value)
    return csv_line(cells)


def csv_line(cells: Any) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer).writerow(cells)
    return buffer.getvalue().encode("utf-8")


WRITERS: Final[dict[str, Callable[[dict[str, Any]], bytes]]] = {"jsonl": jsonl_line, "csv": csv_row}
