"""Reconciliation: every balance and every reservation is computed again from the ledger."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import connection

BALANCES = """
WITH moved AS (
    SELECT budget, sum(spent_delta) AS spent, sum(reserved_delta) AS reserved, sum(debt_delta) AS debt
    FROM budgets_ledgerentry
    CROSS JOIN LATERAL unnest(ARRAY[organization_budget_id, agent_budget_id, job_budget_id]) AS budget
    WHERE budget IS NOT NULL GROUP BY budget
), held AS (
    SELECT budget, sum(amount) AS reserved FROM budgets_reservation
    CROSS JOIN LATERAL unnest(ARRAY[organization_budget_id, agent_budget_id, job_budget_id]) AS budget
    WHERE budget IS NOT NULL AND state = 'held' GROUP BY budget
)
SELECT 'budget ' || coalesce(b.id, m.budget), name, stored, computed
FROM budgets_budget b
FULL JOIN moved m ON m.budget = b.id
LEFT JOIN held h ON h.budget = b.id
CROSS JOIN LATERAL (VALUES
    ('spent', b.spent, coalesce(m.spent, 0)),
    ('reserved', b.reserved, coalesce(m.reserved, 0)),
    ('debt', b.debt, coalesce(m.debt, 0)),
    ('reserved by its holds', b.reserved, coalesce(h.reserved, 0))
) AS v(name, stored, computed)
WHERE stored IS DISTINCT FROM computed
ORDER BY coalesce(b.id, m.budget), name
"""

# A reservation holds what it was made for until it ends, and then has spent its actual cost, debt included.
RESERVATIONS = """
SELECT 'reservation ' || coalesce(r.key, '#' || e.reservation_id), name, stored, computed
FROM budgets_reservation r
FULL JOIN (
    SELECT reservation_id, sum(spent_delta + debt_delta) AS spent, sum(reserved_delta) AS reserved
    FROM budgets_ledgerentry WHERE reservation_id IS NOT NULL GROUP BY reservation_id
) e ON e.reservation_id = r.id
CROSS JOIN LATERAL (VALUES
    ('spent', CASE WHEN r.state = 'held' THEN 0 ELSE r.actual END, e.spent),
    ('reserved', CASE WHEN r.state = 'held' THEN r.amount ELSE 0 END, e.reserved)
) AS v(name, stored, computed)
WHERE stored IS DISTINCT FROM computed
ORDER BY 1, 2
"""


@dataclass(frozen=True, slots=True)
class LedgerDifference:
    """``stored_micros``: in the table; ``computed_micros``: from the ledger. Micro-dollars; None: there is no such
    row."""

    what: str
    name: str
    stored_micros: int | None
    computed_micros: int | None

    def __str__(self) -> str:
        return f"{self.what}: {self.name} is {self.stored_micros}, the ledger says {self.computed_micros}"


def differences() -> list[LedgerDifference]:
    """All that does not add up, each query on one snapshot, so that it may run while money is spent."""
    found: list[LedgerDifference] = []
    with connection.cursor() as cursor:
        for query in (BALANCES, RESERVATIONS):
            cursor.execute(query)
            found += [LedgerDifference(what, name, _int(a), _int(b)) for what, name, a, b in cursor.fetchall()]
    return found


def _int(value: object) -> int | None:
    return None if value is None else int(str(value))
