"""The ledger and its sums as CSV, streamed in constant memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from datetime import date
from typing import Final
from uuid import UUID

from django.db.models import QuerySet

from agentcore_site.audit.services import record
from agentcore_site.jobs.models import Job
from agentcore_site.lib.async_db import briefly
from agentcore_site.lib.row_streams import streamed
from agentcore_site.lib.spreadsheets import csv_line
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import current_organization, require
from budgets.models import LedgerEntry
from budgets.selectors import Spending, between, ledger_visible

BATCH: Final = 1_000
COLUMNS: Final = [
    "id", "at", "kind", "agent_id", "job_id", "purpose", "model", "iteration", "rollout", "spent_delta_micros",
    "reserved_delta_micros", "debt_delta_micros", "cost_micros", "input_tokens", "output_tokens", "cached_tokens",
    "reasoning_tokens", "latency_ms", "source", "estimated", "error",
]  # fmt: skip


@dataclass(frozen=True)
class LedgerExport:
    """Entries that the actor may export, in the order in which they were written."""

    rows: QuerySet[LedgerEntry]

    @briefly
    def batch(self, after: int | None) -> tuple[int | None, bytes]:
        """(the last id, the next lines) after an id; no lines at the end."""
        rows = list(self.rows.filter(id__gt=after or 0).order_by("id").values_list(*COLUMNS)[:BATCH])
        return (int(rows[-1][0]) if rows else after), b"".join(csv_line(row) for row in rows)


def ledger_export_start(
    actor: Actor, *, since: date | None = None, until: date | None = None, job: Job | None = None
) -> LedgerExport:
    """Checks and logs an export of the actor's organisation; of one job, if one is given. Days are UTC, both included.

    Raises:
        Missing, Forbidden: the actor may not read the lines of the organisation's ledger.
    """
    organization: UUID = job.organization_id if job is not None else current_organization(actor).id
    require(actor, "budget.view", organization)
    require(actor, "data.view", organization)
    rows = between(ledger_visible(Actor.of(actor)).filter(organization_id=organization), since, until)
    if job is not None:
        rows = rows.filter(job_id=job.id)
    asked = {"since": str(since or ""), "until": str(until or ""), "job": str(job.id) if job else ""}
    record(actor, "ledger.exported", organization=organization, after=asked)
    return LedgerExport(rows)


def ledger_csv(export: LedgerExport) -> AsyncIterator[bytes]:
    """The lines, batch by batch."""
    return streamed(export.batch, csv_line(COLUMNS))


def breakdown_csv(by: str, rows: Iterable[Spending]) -> bytes:
    """The sums of ``selectors.breakdown`` as one CSV."""
    head = csv_line([by, "cost_micros", "calls", "input_tokens", "output_tokens", "cached_tokens", "estimated_calls"])
    return head + b"".join(
        csv_line(
            [row.key, row.cost_micros, row.calls, row.input_tokens, row.output_tokens, row.cached_tokens, row.estimated]
        )
        for row in rows
    )
