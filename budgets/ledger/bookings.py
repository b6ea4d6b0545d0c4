"""Entries of the ledger that end a reservation, from its row and its bill: pure, without a query."""

from __future__ import annotations

from typing import NamedTuple

from budgets.ledger.posting import Move
from budgets.ledger.values import Settled, storable
from budgets.meter_port import Bill
from budgets.models import EntryKind, HoldState


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


def outcome_of(key: str, row: Row | None, bill: Bill) -> Settled:
    """The outcome of a bill for the reservation under ``key`` (None: there is none)."""
    if row is None:
        return Settled(key, "unknown")
    if row.state == HoldState.HELD:
        return Settled(key, "settled", max(0, bill.amount_micros - row.covered_micros))
    if row.state == HoldState.CHARGED:
        return Settled(key, "refunded", max(0, bill.amount_micros - row.covered_micros))
    return Settled(key, "repeated")


def moves_of(row: Row, outcome: Settled, bill: Bill) -> list[Move]:
    """Entries that book the bill: none if it repeats an earlier one, and one of debt for what exceeds the hold."""
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


def charge_of(row: Row, highest_micros: int | None) -> Move:
    """The charge of a hold that was not settled in time: the highest cost of the job's calls of its kind, where that is
    known and less than the hold."""
    amount_micros = row.amount_micros if highest_micros is None else min(row.amount_micros, highest_micros)
    return Move(
        row.id,
        row.budgets,
        EntryKind.CHARGE,
        spent_micros=amount_micros,
        reserved_micros=-row.amount_micros,
        ends=HoldState.CHARGED,
        cost_micros=amount_micros,
        source="estimate",
        estimated=True,
        error="the hold was not settled in time",
    )
