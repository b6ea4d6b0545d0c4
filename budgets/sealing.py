"""Tables of money that are sealed (``agentcore_site.audit.sealing``): the ledger, and limits of budgets."""

from __future__ import annotations

from agentcore_site.audit.sealing import MICROSECONDS, SealedTable, sealed

CALL = (
    *("organization_id", "agent_id", "job_id", "organization_budget_id", "agent_budget_id", "job_budget_id"),
    *("purpose", "model", "iteration", "rollout"),
)
MOVED = (
    *("kind", "reservation_id", "spent_delta", "reserved_delta", "debt_delta", "cost", "input_tokens"),
    *("output_tokens", "cached_tokens", "reasoning_tokens", "latency_ms", "source", "estimated", "error"),
)
LIMIT = ("organization_id", "scope", "owner_id", "before", "limit", "changed_by_id", "actor", "note")

sealed(
    SealedTable("ledger", "budgets_ledgerentry", "id", ("id", MICROSECONDS, *(f"t.{name}" for name in (*MOVED, *CALL))))
)
sealed(SealedTable("limits", "budgets_budgetlimit", "id", ("id", MICROSECONDS, *(f't."{name}"' for name in LIMIT))))
