"""Exports of trajectories: who may export, what a row looks like, and streams in constant memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from operator import attrgetter
from typing import Any, Final

import orjson
from django.db.models import QuerySet

from agentcore_site.audit.services import record
from agentcore_site.encryption.data_keys import active_key
from agentcore_site.jobs.selectors import job_get
from agentcore_site.lib.async_db import briefly
from agentcore_site.lib.errors import TooLarge
from agentcore_site.lib.money import dollars
from agentcore_site.lib.spreadsheets import csv_line
from agentcore_site.postgresql.replica import from_replica
from agentcore_site.rest.paging import keyset, values_at
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import current_organization, require
from experiences.models import ArchivedJob, TrajectoryRecord
from experiences.models.agent_lookup import agent_get
from experiences.trajectories.archive.reading import archived_batches, archived_in
from experiences.trajectories.filters import trajectories_filtered
from experiences.trajectories.presenters.shapes import LEARNED, LISTED
from experiences.trajectories.selectors import advantages_for, trajectories_visible

MAX_AT_ONCE: Final = 10_000
BATCH: Final = 500
STREAM: Final = "Narrow the filters, or stream them: GET /api/v1/trajectories/export?format=jsonl."
# In the order in which a row is written: what a list has too, and what only a whole trajectory has behind it.
_BEHIND: Final = {
    "rollout": ("query", "steps"),
    "reward_before_ranking": (*LEARNED, "components", "evidence"),
    "tokens": ("cost_usd",),
}
COLUMNS: Final = ("trajectory_id", *(name for first in LISTED for name in (first, *_BEHIND.get(first, ()))))
PLAIN: Final = (*LISTED, "query", "components", "evidence")  # as they stand in the row
CSV_COLUMNS: Final = [n for n in COLUMNS if n not in ("steps", "step_advantages", "components", "evidence")] + ["steps"]
_plain: Final = attrgetter(*PLAIN)
_EMPTY: Final[dict[str, Any]] = dict.fromkeys(COLUMNS)


@dataclass(frozen=True)
class Export:
    """The rows that the actor may export, in an order that an index serves: within a job as it was trained, else by
    time. What is archived comes first, file by file."""

    rows: QuerySet[TrajectoryRecord]
    order: tuple[str, ...]
    archived: Sequence[ArchivedJob] = ()

    def count(self) -> int:
        return from_replica(self.rows, QuerySet.count) + sum(map(len, self._archived()))

    def batches(self, limit: int | None = None) -> Iterator[list[TrajectoryRecord]]:
        """All rows, or the first so many, some at a time; between two batches the database is not needed."""
        left = limit
        for page in chain(self._archived(), self._hot()):
            if left is not None:
                page, left = page[:left], left - len(page)
            if page:
                yield page
            if left is not None and left <= 0:
                return

    def _archived(self) -> Iterator[list[TrajectoryRecord]]:
        return archived_batches(self.archived, self.rows, self.order)

    def _hot(self) -> Iterator[list[TrajectoryRecord]]:
        """Each batch is found by the last one's place and not by an offset."""
        last: TrajectoryRecord | None = None
        while True:
            rows = self.rows if last is None else keyset(self.rows, self.order, values_at(last, self.order))
            page = from_replica(rows, lambda rows: list(rows.order_by(*self.order)[:BATCH]))
            if not page:
                return
            yield page
            last = page[-1]


def export_start(actor: Actor, filters: dict[str, Any], *, format: str) -> Export:
    """Checks and logs an export. ``filters`` by the names of ``TrajectoryFilters``; None is not asked for.

    Raises:
        Missing: job or agent are not there, or not the actor's.
        Forbidden: neither role nor data permission allow it.
        Invalid: a filter is wrong.
        KeyAway: rows are encrypted, and can't be read now.
    """
    organizations = _owners(actor, filters)
    for organization in organizations:
        require(actor, "export", organization)
        active_key(organization)  # one that can't be had is said before the first byte is sent
    rows = trajectories_filtered(trajectories_visible(actor), actor, filters)
    asked = {name: str(value) for name, value in filters.items() if value is not None}
    for organization in organizations:
        record(actor, "trajectories.exported", organization=organization, after={"format": format, "filters": asked})
    order = ("iteration", "scenario", "rollout", "id") if filters.get("job") else ("created_at", "id")
    archived = archived_in(actor, organizations, filters)
    return Export(rows.filter(organization_id__in=organizations), order, archived)


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
    rows = [row for batch in export.batches(limit) for row in as_exported(batch)]
    return {"trajectories": rows, "total_count": total, "exported_count": len(rows)}


async def stream(export: Export, format: str) -> AsyncIterator[bytes]:
    """The export as bytes, batch by batch. Between two batches no connection to the database is held, so that a
    slow reader holds up no other. An async generator, because Django reads a sync one whole before the first byte."""
    if format == "csv":
        yield csv_line(CSV_COLUMNS)
    batches = export.batches()
    while lines := await _read(batches, WRITERS[format]):
        yield lines


@briefly
def _read(batches: Iterator[list[TrajectoryRecord]], write: Callable[[dict[str, Any]], bytes]) -> bytes:
    """The next batch as lines; nothing after the last one."""
    return b"".join(write(row) for row in as_exported(next(batches, [])))


def as_exported(rows: list[TrajectoryRecord]) -> Iterator[dict[str, Any]]:
    """Rows as programs read them, with what the update made of each. One query for all advantages.

    "reward" is what was learned from; where a reward ranked the group, components, evidence and the steps' rewards stay
    those of the payment before ("reward_before_ranking").
    """
    advantages = advantages_for(rows)
    for row in rows:
        whole = _EMPTY | advantages.get(row.id, {})
        whole.update(zip(PLAIN, _plain(row), strict=True))
        whole["trajectory_id"] = row.id
        whole["steps"] = [step_exported(step) for step in row.steps]
        whole["cost_usd"] = dollars(row.cost_micros)
        yield whole


def step_exported(step: dict[str, Any]) -> dict[str, Any]:
    """A stored step with its time in words (ISO 8601) instead of seconds."""
    return step | {"timestamp": datetime.fromtimestamp(float(step.get("timestamp") or 0.0), UTC).isoformat()}


def jsonl_line(row: dict[str, Any]) -> bytes:
    return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)


def csv_row(row: dict[str, Any]) -> bytes:
    plain = row | {"steps": orjson.dumps(row["steps"]).decode()}
    return csv_line(plain[name] for name in CSV_COLUMNS)


WRITERS: Final[dict[str, Callable[[dict[str, Any]], bytes]]] = {"jsonl": jsonl_line, "csv": csv_row}


def _owners(actor: Actor, filters: dict[str, Any]) -> list[Any]:
    """The organisations whose data the filters ask for."""
    if filters.get("job"):
        return [job_get(actor, filters["job"]).organization_id]
    if filters.get("agent"):
        return [agent_get(actor, filters["agent"]).organization_id]
    allowed = [organization for organization in actor.organization_ids if actor.may("export", organization)]
    return allowed or [current_organization(actor).id]
