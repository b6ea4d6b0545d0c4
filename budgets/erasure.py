"""Erasure in budgets: error texts of services, and notes."""

from __future__ import annotations

from typing import Final

from agentcore_site.tenancy.erasure import emptied, personal_rows, rewritten, staying
from budgets.models import BudgetAlert, BudgetLimit, BudgetSettings, LedgerDay, LedgerEntry, ModelPrice, Reservation

STAYS: Final = "The ledger can't be changed: every balance is counted from it."

personal_rows("budget alerts", BudgetAlert, rewritten, path="budget__organization_id", texts=("error",))
personal_rows(
    "budget settings",
    BudgetSettings,
    emptied,
    text="webhook_url",
    note="The webhook of budget alerts is gone: give it another address.",
)
personal_rows("own prices", ModelPrice, rewritten, texts=("source",), names=("model",))
personal_rows("ledger", LedgerEntry, staying, texts=("error", "model"), note=STAYS)
personal_rows("days of the ledger", LedgerDay, staying, texts=("key",), note=STAYS)
personal_rows("reservations", Reservation, staying, texts=("model",), note=STAYS)
personal_rows("limits that were set", BudgetLimit, staying, texts=("actor", "note"), note=STAYS)
