"""The budgets that a job is paid from: which of them stopped it, whether there is room again, and what it spent."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from agentcore_site.jobs.models import Job, JobEvent, Reason, Status
from agentcore_site.lib.money import dollars
from budgets.models import Budget, EntryKind, LedgerEntry
from budgets.selectors import Headroom, Spending, budget_chain, spending

BILL: Final = "bill"  # the type of the event that says what a budget stopped, and what was left of it


def chain_of(job: Job) -> list[Headroom]:
    """Outermost first."""
    own = Budget.objects.filter(owner_id=job.id, organization_id=job.organization_id)
    agent_id = own.values_list("agent_id", flat=True).first()
    return budget_chain(job.organization_id, agent_id=agent_id, job_id=job.id)


def tightest(rooms: list[Headroom]) -> Headroom | None:
    """The budget with the least left: a call that was refused did not fit there."""
    limited = [room for room in rooms if room.left_micros is not None]
    return min(limited, key=lambda room: (not room.debt_micros, room.left_micros), default=None)


def has_room(room: Headroom, job: Job) -> bool:
    """Whether a call like the last one that the job made fits."""
    wanted_micros = _last_call_micros(job)
    return wanted_micros > 0 and not room.debt_micros and (room.left_micros or 0) >= wanted_micros


def blocking(job: Job) -> Headroom | None:
    """The budget that stopped a paused job and has no room for it yet; None where the job can go on, as far as is
    known before it asks."""
    if job.status != Status.PAUSED or job.status_reason != Reason.BUDGET_EXCEEDED:
        return None
    bill = JobEvent.objects.filter(job=job, type=BILL).order_by("-seq").first()
    then = bill.data if bill is not None else {}
    payer = Job.objects.filter(id=then.get("paid_by")).first() or job
    room = tightest(chain_of(payer))
    if room is None or room.left_micros is None:
        return None
    # Its call did not fit what was left then, so that it fits no less now.
    as_then = room.scope == then.get("stopped_by") and dollars(room.left_micros) <= (then.get("left_usd") or 0.0)
    return (
        room
        if room.debt_micros or not room.left_micros or as_then or _last_call_micros(payer) > room.left_micros
        else None
    )


def _last_call_micros(job: Job) -> int:
    """Micro-dollars that were held for the latest call of a job; 0 before it made one."""
    holds = LedgerEntry.objects.filter(job_id=job.id, organization_id=job.organization_id, kind=EntryKind.RESERVE)
    return holds.order_by("-id").values_list("reserved_delta_micros", flat=True).first() or 0


def job_spent_micros(job_id: UUID) -> int:
    """Micro-dollars, by the ledger."""
    return Budget.objects.filter(job_id=job_id).values_list("spent_micros", flat=True).first() or 0


def job_bill(job: Job) -> tuple[list[Spending], list[Spending]]:
    """A job's spending by purpose and by model, the most expensive first."""
    entries = LedgerEntry.objects.filter(job_id=job.id, organization_id=job.organization_id)
    return spending(entries, "purpose"), spending(entries, "model")
