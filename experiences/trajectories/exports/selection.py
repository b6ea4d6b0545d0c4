"""The rows of an export and the people who may have them. They are read in an order that an index serves, in batches,
each batch found by the last row's place and not by an offset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple

from django.db.models import F, QuerySet
from django.db.models.fields.tuple_lookups import Tuple, TupleGreaterThan

from agentcore_site.audit.services import record
from agentcore_site.encryption.data_keys import active_key
from agentcore_site.jobs.selectors import job_get
from agentcore_site.lib.errors import Invalid
from agentcore_site.postgresql.replica import from_replica
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import current_organization, require
from experiences.models import Agent, ArchivedJob, TrajectoryRecord
from experiences.models.agent_lookup import agent_get
from experiences.trajectories.archive.reading import archived_in, row_group_rows
from experiences.trajectories.exports.rows import ExportRow, rows_read
from experiences.trajectories.filters import trajectories_filtered
from experiences.trajectories.selectors import trajectories_visible

BATCH: Final = 1_000  # rows at most
BATCH_BYTES: Final = 2 * 2**20  # of JSON, about: the batches of longer rows have fewer
FIRST: Final = 200
SFT: Final = "sft"
DPO: Final = "dpo"
CONVERSATIONS: Final = (SFT, DPO)
IN_JOB: Final = ("iteration", "scenario", "rollout", "id")
BY_JOB: Final = ("job_id", *IN_JOB)
BY_TIME: Final = ("created_at", "id")
ACTIONS: Final = (
    "Its agent chooses actions from a list and no words: its trajectories are no conversations. Export them as jsonl,"
    " csv or parquet."
)


class Mark(NamedTuple):
    """A place in an export up to which rows are written. ``archived``: the archived job and the row group in it; None
    among the rows of the database. ``at``: the values of the last row by which rows are ordered, as text; None: the row
    group begins."""

    archived: tuple[int, int] | None = None
    at: tuple[str, ...] | None = None

    def stored(self) -> dict[str, Any]:
        return {"archived": self.archived and list(self.archived), "at": self.at and list(self.at)}

    @classmethod
    def of(cls, stored: Mapping[str, Any] | None) -> Mark | None:
        if not stored:
            return None
        archived, at = stored["archived"], stored["at"]
        return cls(tuple(archived) if archived else None, tuple(at) if at else None)


@dataclass(frozen=True)
class ExportBatch:
    """Rows that are together, in order, with what marks the place behind any of them."""

    rows: list[ExportRow]
    archived: tuple[int, int] | None
    order: tuple[str, ...]

    def mark(self, row: ExportRow) -> Mark:
        return Mark(self.archived, tuple(_text(row.values[name]) for name in self.order))


@dataclass(frozen=True)
class Export:
    """The rows that the actor may export: within a job as it was trained, else by time; rows of a group are together
    where a format needs it. What is archived comes first, file by file."""

    rows: QuerySet[TrajectoryRecord]
    order: tuple[str, ...]
    archived: Sequence[ArchivedJob] = ()

    def count(self) -> int:
        return from_replica(self.rows, QuerySet.count) + sum(self._archived_counts())

    def estimate(self) -> int:
        """The largest possible number of rows, without opening an archive."""
        return from_replica(self.rows, QuerySet.count) + sum(part.rows for part in self.archived)

    def at_least(self, enough: int) -> int:
        """As ``estimate``, but counted to about ``enough`` only: a million rows take a third of a second."""
        some = self.rows.order_by().only("month")[:enough]
        return from_replica(some, QuerySet.count) + sum(part.rows for part in self.archived)

    def archive_parts(self) -> list[str]:
        """The archived parts to read: the list changes when rows go there, come back, or are erased there."""
        return sorted(f"{part.pk}/{part.archive_id}/{part.archive.revision}" for part in self.archived)

    def batches(self, after: Mark | None = None) -> Iterator[ExportBatch]:
        """All rows, or those after a place; between two batches the database is not needed."""
        if after is None or after.archived is not None:
            yield from self._archived(after)
            after = None
        yield from self._hot(after)

    def _archived_counts(self) -> Iterator[int]:
        for part in self.archived:
            for group in _groups(part):
                with row_group_rows(part, group):
                    yield self.rows.count()

    def _archived(self, after: Mark | None) -> Iterator[ExportBatch]:
        waiting = after is not None
        for part in self.archived:
            for group in _groups(part):
                here = waiting and after is not None and after.archived == (part.pk, group)
                if waiting and not here:
                    continue
                waiting = False
                rows = _behind(self.rows, self.order, after.at) if here and after and after.at else self.rows
                with row_group_rows(part, group):
                    found = rows_read(rows.order_by(*self.order))
                if found:
                    yield ExportBatch(found, (part.pk, group), self.order)

    def _hot(self, after: Mark | None) -> Iterator[ExportBatch]:
        at: Sequence[Any] | None = None if after is None else after.at
        size = FIRST
        while True:
            rows = self.rows if at is None else _behind(self.rows, self.order, at)
            size = min(size, BATCH)
            found = from_replica(rows, partial(self._first, size))
            if found:
                yield ExportBatch(found, None, self.order)
            if len(found) < size:
                return
            at = [found[-1].values[name] for name in self.order]
            fits = BATCH_BYTES * len(found) // max(1, sum(row.size for row in found))
            size = max(1, min(BATCH, fits, 4 * size))

    def _first(self, n: int, rows: QuerySet[TrajectoryRecord]) -> list[ExportRow]:
        return rows_read(rows.order_by(*self.order)[:n])


def export_start(actor: Actor, filters: Mapping[str, Any], *, format: str) -> Export:
    """Checks and logs an export. ``filters`` by the names of ``TrajectoryFilters``; None is not asked for.

    Raises:
        Missing: job or agent are not there, or not the actor's.
        Forbidden: neither role nor data permission allow it.
        Invalid: a filter is wrong, or these rows have no such format.
        KeyUnavailable: rows are encrypted, and can't be read now.
    """
    organizations, export = export_of(actor, filters, format=format)
    asked = {name: str(value) for name, value in filters.items() if value is not None}
    for organization in organizations:
        record(actor, "trajectories.exported", organization=organization, after={"format": format, "filters": asked})
    return export


def export_of(
    actor: Actor, filters: Mapping[str, Any], *, format: str, until: datetime | None = None
) -> tuple[list[Any], Export]:
    """The same without a word in the log: the organisations, and the export. ``until``: rows that began later are left
    out."""
    asked = dict(filters)
    organizations = _owners(actor, asked)
    for organization in organizations:
        require(actor, "export", organization)
        active_key(organization)  # one that can't be had is said before the first byte is sent
    rows = trajectories_filtered(trajectories_visible(actor), actor, asked)
    archived = archived_in(actor, organizations, asked)
    if format in CONVERSATIONS:
        rows = _in_words(actor, rows, archived, asked, format)
    if until is not None:
        rows = rows.filter(created_at__lt=until)
    order = IN_JOB if asked.get("job") else BY_JOB if format == DPO else BY_TIME
    return organizations, Export(rows.filter(organization_id__in=organizations), order, archived)


def _in_words(
    actor: Actor,
    rows: QuerySet[TrajectoryRecord],
    archived: Sequence[ArchivedJob],
    filters: Mapping[str, Any],
    format: str,
) -> QuerySet[TrajectoryRecord]:
    """The rows of which conversations are made: of SFT the successes, where the filters do not say themselves which.

    Raises:
        Invalid: an agent that chooses actions has none.
    """
    agent = None
    if filters.get("agent"):
        agent = agent_get(actor, filters["agent"])
    elif filters.get("job"):
        of = [*rows.order_by().values_list("agent_id", flat=True)[:1], *(one.archive.agent_id for one in archived)]
        agent = Agent.objects.filter(pk__in=of[:1]).first()
    if agent is not None and agent.runtime == "action":
        raise Invalid(ACTIONS, fields={"format": ACTIONS})
    chosen = any(filters.get(name) not in (None, "") for name in ("success", "outcome", "min_reward"))
    if format == DPO:
        return rows.filter(reward__isnull=False)
    return rows if chosen else rows.filter(success=True)


def _owners(actor: Actor, filters: Mapping[str, Any]) -> list[Any]:
    """The organisations whose data the filters ask for."""
    if filters.get("job"):
        return [job_get(actor, filters["job"]).organization_id]
    if filters.get("agent"):
        return [agent_get(actor, filters["agent"]).organization_id]
    allowed = [organization for organization in actor.organization_ids if actor.may("export", organization)]
    return allowed or [current_organization(actor).id]


def _behind(rows: QuerySet[TrajectoryRecord], order: Sequence[str], at: Sequence[Any]) -> QuerySet[TrajectoryRecord]:
    """The rows after a place. Compared as one tuple: the index leads there, where a condition for each column
    (``keyset``) makes PostgreSQL walk through the iteration from its first row on with every batch."""
    return rows.filter(TupleGreaterThan(Tuple(*map(F, order)), tuple(at)))


def _groups(part: ArchivedJob) -> range:
    return range(part.first_group, part.first_group + part.groups)


def _text(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
