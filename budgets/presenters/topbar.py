"""The month's spending in the top bar of every page: one query by a unique index."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from budgets.ledger.accounts import month_of
from budgets.models import Budget


@dataclass(frozen=True, slots=True)
class Pill:
    """Micro-dollars of the running month; ``limit_micros`` None: not limited. ``tone``: "", "warn" or "bad"."""

    spent_micros: int
    limit_micros: int | None

    @property
    def share(self) -> float | None:
        if self.limit_micros is None:
            return None
        return self.spent_micros / self.limit_micros if self.limit_micros else 1.0

    @property
    def tone(self) -> str:
        share = self.share or 0.0
        return "bad" if share >= 1.0 else "warn" if share >= 0.75 else ""


def budget_pill(organization_id: UUID) -> Pill:
    """The organisation's spending and debt this month. Without a budget both are zero, and there is no limit."""
    rows = Budget.objects.filter(owner_id=organization_id, organization_id=organization_id, period_start=month_of())
    for spent_micros, debt_micros, limit_micros in rows.values_list("spent_micros", "debt_micros", "limit_micros"):
        return Pill(spent_micros + debt_micros, limit_micros)
    return Pill(0, None)
