"""A row of every model of the budgets, for tests that open each page."""

from __future__ import annotations

from typing import Any

from agentcore_site.jobs.models import Job
from budgets.ledger import Hold, reserve, settle
from budgets.ledger.accounts import Chain, chain_open, owners
from budgets.meter_port import Bill
from budgets.models import Budget, BudgetAlert, BudgetLimit, BudgetSettings, LedgerEntry, ModelPrice, Reservation
from budgets.services import limit_change


def a_row_of_each(job: Job, chain: Chain | None = None) -> list[Any]:
    """A job that spent 80 of 100 micro-dollars, its alerts, and a price. Not inside a transaction of yours."""
    if chain is None:
        chain = chain_open(job.organization_id, job_id=job.id)
    limit_change(None, owners(job.organization_id, chain.agent_id, job.id)[-1], 100)
    reserve(Hold(f"{job.id}/0", chain, 80, "training", "small"))
    settle(f"{job.id}/0", Bill(80, None, "provider"))
    ModelPrice.objects.create(model="small", valid_from="2026-01-01", input_micros=1, output_micros=1, source="test")
    BudgetSettings.objects.get_or_create(organization_id=job.organization_id)
    models = (Budget, BudgetLimit, Reservation, LedgerEntry, BudgetAlert, ModelPrice, BudgetSettings)
    return [model.objects.all()[0] for model in models]
