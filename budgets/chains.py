"""The budgets that a job is paid from: which of them stopped it, whether there is room again, and what it spent."""

from __future__ import annotations

from uuid import UUID

from agentcore_site.jobs.models import Job
from budgets.models import Budget, EntryKind, LedgerEntry
from budgets.selectors import Room, Spending, budget_chain, spending


def chain_of(job: Job) -> list[Room]:
    """Outermost first."""
    own = Budget.objects.filter(owner_id=job.id, organization_id=job.organization_id)
    agent_id = own.values_list("agent_id", flat=True).first()
    return budget_chain(job.organization_id, agent_id=agent_id, job_id=job.id)


def tightest(rooms: list[Room]) -> Room | None:
    """Whatever a refused call wanted, the budget with the least left had no room for it."""
    limited = [room for room in rooms if room.left is not None]
    return min(limited, key=lambda room: (not room.debt, room.left), default=None)


def has_room(room: Room, job: Job) -> bool:
    """Whether a call like the last one that the job made fits."""
    holds = LedgerEntry.objects.filter(job_id=job.id, organization_id=job.organization_id, kind=EntryKind.RESERVE)
    wanted = holds.order_by("-id").values_list("reserved_delta", flat=True).first()
    return wanted is not None and not room.debt and (room.left or 0) >= max(wanted, 1)


def job_spent(job_id: UUID) -> int:
    """Micro-dollars, by the ledger."""
    return Budget.objects.filter(job_id=job_id).values_list("spent", flat=True).first() or 0


def job_bill(job: Job) -> tuple[list[Spending], list[Spending]]:
    """What a job spent by purpose and by model, the dearest first."""
    entries = LedgerEntry.objects.filter(job_id=job.id, organization_id=job.organization_id)
    return spending(entries, "purpose"), spending(entries, "model")
