"""Retention of the ledger: it is kept."""

from __future__ import annotations

from agentcore_site.lib.retention import kept

kept("ledger", "Kept: every dollar, and every limit that was set.", "budgets_ledgerentry", "budgets_budgetlimit")
