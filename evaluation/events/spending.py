"""Cost of a training elsewhere, in the same ledger as calls of models: held at the start, settled by the service's
reports.

A service reports sums. The ledger itself says which part of a sum is booked, so that a repeated report is booked once.
One hold covers all that the job's budget still allows; each booked part ends it and begins another.
"""

from __future__ import annotations

from typing import Final

from budgets.ledger import Hold, UnknownHold, reserve, settle
from budgets.ledger.accounts import DEFAULT_JOB_LIMIT_MICROS, Chain, chain_open
from budgets.meter_port import Bill
from budgets.models import Budget
from evaluation.events.models import TrainingRequest

# As long as its stream keeps what a service says. A job that ends settles sooner.
LEASE_SECONDS: Final = 7 * 86_400.0
PURPOSE: Final = "training"


def budget_hold(row: TrainingRequest) -> None:
    """Holds all that the training may still cost. Held already: nothing.

    Raises:
        BudgetRefused: a budget of the chain has no room for it.
        RuntimeError: called inside a transaction.
    """
    chain, booked_micros, limit_micros = _account(row)
    left_micros = max(0, limit_micros - booked_micros)
    reserve(Hold(_key(row, booked_micros), chain, left_micros, PURPOSE, row.base_model, lease=LEASE_SECONDS))


def cost_book(row: TrainingRequest, *, ended: bool) -> int:
    """Books what its service has reported since, and holds what is left of its budget; nothing more once it has
    ``ended``. Returns what is left of its budget.

    Raises:
        BudgetRefused, RuntimeError: as for ``budget_hold``.
    """
    chain, booked_micros, limit_micros = _account(row)
    new_micros = max(0, row.cost_micros - booked_micros)
    if new_micros or ended:
        key = _key(row, booked_micros)
        if not _settled(key, new_micros) and new_micros:  # it had ended, or its hold was never made: spent it is
            reserve(Hold(f"{key}/late", chain, 0, PURPOSE, row.base_model, late=True))
            _settled(f"{key}/late", new_micros)
    left_micros = limit_micros - booked_micros - new_micros
    if new_micros and not ended and left_micros > 0:
        budget_hold(row)
    return left_micros


def _settled(key: str, amount_micros: int) -> bool:
    """Whether a hold was ended by this."""
    try:
        return settle(key, Bill(amount_micros, None, "provider")).state != "repeated"
    except UnknownHold:
        return False


def _account(row: TrainingRequest) -> tuple[Chain, int, int]:
    """The payers, the amount that is booked, and the job's limit, in micro-dollars."""
    chain = chain_open(row.organization_id, agent_id=row.agent_id, job_id=row.job_id)
    own = Budget.objects.get(pk=chain.job_budget)
    return (
        chain,
        own.spent_micros + own.debt_micros,
        DEFAULT_JOB_LIMIT_MICROS if own.limit_micros is None else own.limit_micros,
    )


def _key(row: TrainingRequest, booked_micros: int) -> str:
    return f"{row.job_id}/elsewhere/{booked_micros}"
