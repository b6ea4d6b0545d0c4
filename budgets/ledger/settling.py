"""After the call: its real cost is spent, the rest of the hold is given back.

A hold that was not settled in time (its worker died) is charged, because the call may have been made. The charge is
the most expensive of the job's last calls of its kind where enough of them were measured, else the whole hold. Of n
costs that come in any order the next is above them all once in n + 1 times. A later settlement corrects the charge.
A bill above the hold or the charge is never dropped: its excess becomes debt, so that spent + reserved stays within
the limit.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

from django.db import connection, transaction

from budgets.ledger.bookings import Row, charge_of, moves_of, outcome_of
from budgets.ledger.posting import Move, lock, post
from budgets.ledger.values import LEASE, Settled, Settlement, UnknownHold
from budgets.meter_port import Bill

log = logging.getLogger(__name__)

MEASURED: Final = 100  # calls needed before their maximum replaces a missing cost
LAST: Final = 500  # entries of a job that are looked at
COLUMNS = (
    "id, key, state, amount, organization_budget_id, agent_budget_id, job_budget_id, actual,"
    f" expires_at - created_at < make_interval(secs => {LEASE + 1}),"  # its two times were taken one after the other
    " created_at > clock_timestamp() - interval '1 minute'"
)
FIND = f"SELECT {COLUMNS} FROM budgets_reservation WHERE key = ANY(%s) ORDER BY key FOR NO KEY UPDATE"  # noqa: S608
EXPIRED = (
    f"SELECT {COLUMNS} FROM budgets_reservation WHERE state = 'held' AND expires_at <= clock_timestamp()"  # noqa: S608
    " ORDER BY key LIMIT %s FOR NO KEY UPDATE SKIP LOCKED"
)
# What the calls of a job cost, by model and purpose, where enough of them were measured.
HIGHEST = """
SELECT job, model, purpose, max(cost) FROM (
    SELECT l.job_id AS job, l.model, l.purpose, l.cost FROM unnest(%s::uuid[]) AS wanted(job),
    LATERAL (
        SELECT * FROM budgets_ledgerentry WHERE job_id = wanted.job ORDER BY id DESC LIMIT %s
    ) l WHERE l.kind = 'settle' AND l.source IN ('provider', 'table')
) AS measured GROUP BY job, model, purpose HAVING count(*) >= %s
"""
TAGS = "SELECT id, job_id, model, purpose FROM budgets_reservation WHERE id = ANY(%s) AND job_id IS NOT NULL"


def settle(key: str, bill: Bill) -> Settled:
    """Books what an attempt came to. Idempotent.

    Raises:
        UnknownHold: nothing was reserved under this key.
        RuntimeError: called inside a transaction.
    """
    [outcome] = settle_many([Settlement(key, bill)])
    if outcome.state == "unknown":
        raise UnknownHold(f"Nothing is held under {key!r}.")
    return outcome


def settle_many(settlements: Sequence[Settlement]) -> list[Settled]:
    """Books many in one short transaction. The first settlement of a key counts, others change nothing.

    Raises:
        RuntimeError: called inside a transaction.
    """
    bills: dict[str, Bill] = {}
    for settlement in settlements:
        bills.setdefault(settlement.key, settlement.bill)
    if not bills:
        return []
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        cursor.execute(FIND, [list(bills)])
        rows = {row[1]: Row(*row) for row in cursor.fetchall()}
        outcomes = {key: outcome_of(key, rows.get(key), bill) for key, bill in bills.items()}
        moves = [move for key, row in rows.items() for move in moves_of(row, outcomes[key], bills[key])]
        _post(cursor, moves)
    for outcome in outcomes.values():
        if outcome.excess_micros:
            log.error("call %s cost %d micro-dollars more than it held", outcome.key, outcome.excess_micros)
    seen: set[str] = set()
    result = []
    for one in settlements:
        outcome = outcomes[one.key]
        repeated = one.key in seen and outcome.state != "unknown"
        result.append(Settled(one.key, "repeated") if repeated else outcome)
        seen.add(one.key)
    return result


def charge_expired(*, limit: int = 1_000) -> int:
    """Charges up to ``limit`` expired holds and says how many. Two sweeps at once take different ones.

    Raises:
        RuntimeError: called inside a transaction.
    """
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        cursor.execute(EXPIRED, [limit])
        rows = [Row(*row) for row in cursor.fetchall()]
        highest_micros = _highest_costs(cursor, [row.id for row in rows])
        moves = [charge_of(row, highest_micros.get(row.id)) for row in rows]
        _post(cursor, moves)
    return len(rows)


def _highest_costs(cursor: Any, reservations: Sequence[int]) -> dict[int, int]:
    """By reservation, the highest cost among the last calls of its job, model and purpose."""
    cursor.execute(TAGS, [list(reservations)])
    tags = {row[0]: row[1:] for row in cursor.fetchall()}
    if not tags:
        return {}
    cursor.execute(HIGHEST, [sorted({job for job, _, _ in tags.values()}), LAST, MEASURED])
    known = {tuple(row[:3]): int(row[3]) for row in cursor.fetchall()}
    return {one: known[of] for one, of in tags.items() if of in known}


def _post(cursor: Any, moves: Sequence[Move]) -> None:
    if moves:
        post(cursor, lock(cursor, {budget for move in moves for budget in move.budgets}), moves)
