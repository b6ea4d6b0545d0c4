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
from typing import Any, Final, NamedTuple

from django.db import connection, transaction

from budgets.ledger.posting import Move, lock, post
from budgets.ledger.values import LEASE, Settled, Settlement, UnknownHold, storable
from budgets.meter_port import Bill
from budgets.models import EntryKind, HoldState

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
DEAREST = """
SELECT job, model, purpose, max(cost) FROM (
    SELECT l.job_id AS job, l.model, l.purpose, l.cost FROM unnest(%s::uuid[]) AS wanted(job),
    LATERAL (
        SELECT * FROM budgets_ledgerentry WHERE job_id = wanted.job ORDER BY id DESC LIMIT %s
    ) l WHERE l.kind = 'settle' AND l.source IN ('provider', 'table')
) AS measured GROUP BY job, model, purpose HAVING count(*) >= %s
"""
TAGS = "SELECT id, job_id, model, purpose FROM budgets_reservation WHERE id = ANY(%s) AND job_id IS NOT NULL"


class Row(NamedTuple):
    """A reservation under its lock. ``actual_micros`` is what it was charged or settled at; ``paced``: it counts for
    how fast its organisation spends; ``fresh``: it was made in the last minute."""

    id: int
    key: str
    state: str
    amount_micros: int
    organization_budget: int | None
    agent_budget: int | None
    job_budget: int | None
    actual_micros: int | None = None
    paced: bool = True
    fresh: bool = True

    @property
    def budgets(self) -> list[int]:
        return [one for one in (self.organization_budget, self.agent_budget, self.job_budget) if one is not None]

    @property
    def covered_micros(self) -> int:
        """The largest bill without debt: the hold, or the charge that took its place."""
        return self.amount_micros if self.state == HoldState.HELD or self.actual_micros is None else self.actual_micros

    def pace_micros(self, bill_micros: int) -> int:
        """A bill's change of this minute's spending: the hold counts for the minute in which it was made."""
        change_micros = bill_micros - self.amount_micros if self.paced else 0
        return change_micros if self.fresh else max(0, change_micros)


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
        outcomes = {key: _outcome(key, rows.get(key), bill) for key, bill in bills.items()}
        moves = [move for key, row in rows.items() for move in _moves(row, outcomes[key], bills[key])]
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
        dearest_micros = _dearest_micros(cursor, [row.id for row in rows])
        moves = [
            Move(
                row.id,
                row.budgets,
                EntryKind.CHARGE,
                spent_micros=min(row.amount_micros, dearest_micros.get(row.id, row.amount_micros)),
                reserved_micros=-row.amount_micros,
                ends=HoldState.CHARGED,
                cost_micros=min(row.amount_micros, dearest_micros.get(row.id, row.amount_micros)),
                source="estimate",
                estimated=True,
                error="the hold was not settled in time",
            )
            for row in rows
        ]
        _post(cursor, moves)
    return len(rows)


def _dearest_micros(cursor: Any, reservations: Sequence[int]) -> dict[int, int]:
    """By reservation, the highest cost among the last calls of its job, model and purpose."""
    cursor.execute(TAGS, [list(reservations)])
    tags = {row[0]: row[1:] for row in cursor.fetchall()}
    if not tags:
        return {}
    cursor.execute(DEAREST, [sorted({job for job, _, _ in tags.values()}), LAST, MEASURED])
    known = {tuple(row[:3]): int(row[3]) for row in cursor.fetchall()}
    return {one: known[of] for one, of in tags.items() if of in known}


def _outcome(key: str, row: Row | None, bill: Bill) -> Settled:
    if row is None:
        return Settled(key, "unknown")
    if row.state == HoldState.HELD:
        return Settled(key, "settled", max(0, bill.amount_micros - row.covered_micros))
    if row.state == HoldState.CHARGED:
        return Settled(key, "refunded", max(0, bill.amount_micros - row.covered_micros))
    return Settled(key, "repeated")


def _moves(row: Row, outcome: Settled, bill: Bill) -> list[Move]:
    if outcome.state == "repeated":
        return []
    late = outcome.state == "refunded"
    within_micros = min(bill.amount_micros, row.covered_micros)
    usage, source = bill.usage, bill.source[:12]
    moves = [
        Move(
            row.id,
            row.budgets,
            EntryKind.REFUND if late else EntryKind.SETTLE,
            spent_micros=within_micros - row.covered_micros if late else within_micros,
            reserved_micros=0 if late else -row.amount_micros,
            ends=HoldState.REFUNDED if late else HoldState.SETTLED,
            cost_micros=bill.amount_micros,
            tokens=(usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.reasoning_tokens)
            if usage
            else (0, 0, 0, 0),
            latency_ms=bill.latency_ms,
            source=source,
            estimated=bill.source == "estimate" or bool(usage and usage.estimated),
            error=storable(bill.error, 1000),
            paced_micros=0 if late else row.pace_micros(bill.amount_micros),
        )
    ]
    if outcome.excess_micros:
        was = "charged were" if late else "the hold was"
        error = f"the bill was {bill.amount_micros}, {was} {row.covered_micros} micro-dollars"
        debt_micros = outcome.excess_micros
        moves.append(Move(row.id, row.budgets, EntryKind.DEBT, debt_micros=debt_micros, source=source, error=error))
    return moves


def _post(cursor: Any, moves: Sequence[Move]) -> None:
    if moves:
        post(cursor, lock(cursor, {budget for move in moves for budget in move.budgets}), moves)
