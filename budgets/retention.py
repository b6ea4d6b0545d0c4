"""Retention of money: every row is kept."""

from __future__ import annotations

from agentcore_site.lib.retention import kept

kept("ledger", "Kept: every dollar, and every limit that was set.", "budgets_ledgerentry", "budgets_budgetlimit")
kept("days of the ledger", "Kept: sums of each day, as the ledger that they add up.", "budgets_ledgerday")
kept(
    "budgets and holds",
    "Kept: what each budget came to, and what each call might have cost.",
    "budgets_budget",
    "budgets_reservation",
    "budgets_budgetalert",
    "budgets_budgetsettings",
)
kept("prices of models", "Kept: a call is charged by the price of its day.", "budgets_modelprice")
