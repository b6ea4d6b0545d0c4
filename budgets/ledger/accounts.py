"""The budgets that one call is charged to: organisation, agent, job or playground. Opened on first use in each period.

The row of a period begins with the owner's standing limit. Code that opens one, or changes a limit, takes the
owner's advisory lock first: without it a month that begins while a limit is changed could open with the old one.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Final

from django.db import connection, transaction
from django.db.models import QuerySet

from agentcore_site.ids import derived
from agentcore_site.lib.money import MICROS
from budgets.models import EVER, Budget, BudgetLimit, Period, Scope

# What a job may spend in all where no limit was set for it.
DEFAULT_JOB_LIMIT_MICROS: Final = 100 * MICROS


@dataclass(frozen=True, slots=True)
class BudgetOwner:
    """An organisation, its playground, an agent or a job with a budget. ``agent_id`` of a job's owner is the agent of
    the job."""

    organization_id: uuid.UUID
    scope: str
    id: uuid.UUID
    agent_id: uuid.UUID | None = None

    @property
    def period(self) -> str:
        return Period.TOTAL if self.scope == Scope.JOB else Period.MONTH

    def start(self, month: date) -> date:
        return EVER if self.scope == Scope.JOB else month


@dataclass(frozen=True, slots=True)
class Chain:
    """The payers of a call, and their rows of ``Budget`` in ``month``. A call without agent or job has no such row;
    ``job_budget`` is the playground's of its calls, which have no job."""

    organization_id: uuid.UUID
    agent_id: uuid.UUID | None
    job_id: uuid.UUID | None
    month: date
    organization_budget: int
    agent_budget: int | None = None
    job_budget: int | None = None

    @property
    def budgets(self) -> tuple[int, ...]:
        """Ids of the budgets, outermost first."""
        chain = (self.organization_budget, self.agent_budget, self.job_budget)
        return tuple(one for one in chain if one is not None)


def month_of(moment: datetime | None = None) -> date:
    """The first day of the month (UTC) of a moment; of now."""
    return (moment or datetime.now(UTC)).astimezone(UTC).date().replace(day=1)


def month_over(budget: Budget) -> bool:
    """Whether its month is past, so that nothing more is spent from it but late settlements, and no limit is set."""
    return budget.scope != Scope.JOB and budget.period_start < month_of()


def playground_owner(organization_id: uuid.UUID) -> BudgetOwner:
    """The owner of the budget of what people try by hand."""
    return BudgetOwner(organization_id, Scope.PLAYGROUND, derived(organization_id, Scope.PLAYGROUND.value))


def owners(
    organization_id: uuid.UUID,
    agent_id: uuid.UUID | None = None,
    job_id: uuid.UUID | None = None,
    *,
    playground: bool = False,
) -> list[BudgetOwner]:
    """The owners in a chain, outermost first. A call of the playground has no job.

    Raises ValueError: it has both.
    """
    if playground and job_id is not None:
        raise ValueError("A call of the playground has no job.")
    chain = [BudgetOwner(organization_id, Scope.ORGANIZATION, organization_id)]
    if agent_id is not None:
        chain.append(BudgetOwner(organization_id, Scope.AGENT, agent_id, agent_id))
    if job_id is not None:
        chain.append(BudgetOwner(organization_id, Scope.JOB, job_id, agent_id))
    if playground:
        chain.append(playground_owner(organization_id))
    return chain


def chain_open(
    organization_id: uuid.UUID,
    *,
    agent_id: uuid.UUID | None = None,
    job_id: uuid.UUID | None = None,
    playground: bool = False,
    month: date | None = None,
) -> Chain:
    """The chain of a month (of this one), with rows made where an owner has none yet."""
    month = month or month_of()
    chain = owners(organization_id, agent_id, job_id, playground=playground)
    rows = Budget.objects.filter(
        organization_id=organization_id, owner_id__in=[one.id for one in chain], period_start__in=[month, EVER]
    )
    known = {(owner, start): key for key, owner, start in rows.values_list("id", "owner_id", "period_start")}
    ids = {one.scope: known.get((one.id, one.start(month))) or budget_open(one, month) for one in chain}
    return Chain(
        organization_id,
        agent_id,
        job_id,
        month,
        ids[Scope.ORGANIZATION],
        ids.get(Scope.AGENT),
        ids.get(Scope.PLAYGROUND if playground else Scope.JOB),
    )


def budget_open(owner: BudgetOwner, month: date) -> int:
    """The id of the owner's row for a month (a job's only one), made if it is not there."""
    with transaction.atomic():
        owner_lock(owner.id)
        limit_micros = limit_standing_micros(owner)
        Budget.objects.bulk_create(
            [
                Budget(
                    organization_id=owner.organization_id,
                    scope=owner.scope,
                    owner_id=owner.id,
                    agent_id=owner.agent_id,
                    job_id=owner.id if owner.scope == Scope.JOB else None,
                    period=owner.period,
                    period_start=owner.start(month),
                    limit_micros=limit_micros,
                )
            ],
            ignore_conflicts=True,
        )
        return budgets_of(owner).values_list("id", flat=True).get(period_start=owner.start(month))


def budgets_of(owner: BudgetOwner) -> QuerySet[Budget]:
    """The owner's rows. Within the organisation: another organisation may name the same id."""
    return Budget.objects.filter(owner_id=owner.id, organization_id=owner.organization_id)


def limit_standing_micros(owner: BudgetOwner) -> int | None:
    """The newest limit of an owner in micro-dollars; a job that has none gets the default, others are not limited."""
    mine = BudgetLimit.objects.filter(owner_id=owner.id, organization_id=owner.organization_id)
    for limit_micros in mine.order_by("-id").values_list("limit_micros", flat=True)[:1]:
        return limit_micros
    return DEFAULT_JOB_LIMIT_MICROS if owner.scope == Scope.JOB else None


def owner_lock(owner_id: uuid.UUID) -> None:
    """Makes those who open a budget of this owner, or change its limit, take turns until their transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"budget:{owner_id}"])
