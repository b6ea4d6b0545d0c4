"""Bookings of a bill and of a missing one, by the row of the reservation alone."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from budgets.ledger.accounts import Chain
from budgets.ledger.bookings import Row, charge_of, moves_of, outcome_of
from budgets.ledger.posting import Move
from budgets.ledger.values import LEASE, Hold, LedgerRefusal, Reserved, Settled, Settlement, storable
from budgets.meter_port import Bill, BudgetRefused, SpendingRateFull
from budgets.pricing import Usage

CHAIN = Chain(uuid.uuid4(), None, None, date(2026, 1, 1), 7)
HELD = Row(1, "a", "held", 100, 7, 8, 9)
CHARGED = HELD._replace(state="charged", actual_micros=60)
USAGE = Usage(100, 20, cached_tokens=10, reasoning_tokens=5)
BILL = Bill(40, USAGE, "provider", latency_ms=250, error="")


def booked(row: Row, bill: Bill) -> tuple[Settled, list[Move]]:
    outcome = outcome_of(row.key, row, bill)
    return outcome, moves_of(row, outcome, bill)


def test_a_bill_within_its_hold_is_spent_and_gives_the_rest_back() -> None:
    outcome, moves = booked(HELD, BILL)
    assert outcome == Settled("a", "settled", 0) == Settled("a", "settled")
    assert moves == [
        Move(1, [7, 8, 9], "settle", 40, -100, 0, "settled", 40, (100, 20, 10, 5), 250, "provider", False, "", -60)
    ]


def test_a_late_bill_corrects_the_charge_and_moves_nothing_else() -> None:
    outcome, moves = booked(CHARGED, BILL)
    assert outcome == Settled("a", "refunded", 0)
    assert moves == [
        Move(1, [7, 8, 9], "refund", -20, 0, 0, "refunded", 40, (100, 20, 10, 5), 250, "provider", False, "", 0)
    ]


@pytest.mark.parametrize(
    ("row", "spent", "error"),
    [
        (HELD, 100, "the bill was 130, the hold was 100 micro-dollars"),
        (CHARGED, 0, "the bill was 130, charged were 60 micro-dollars"),
    ],
)
def test_a_bill_above_its_hold_or_charge_is_debt(row: Row, spent: int, error: str) -> None:
    """Spent and held stay within the limit; no part of the bill is dropped."""
    outcome, (first, debt) = booked(row, replace(BILL, amount_micros=130))
    assert outcome.excess_micros == 130 - row.covered_micros
    assert (first.spent_micros, first.cost_micros) == (spent, 130)
    assert debt == Move(1, [7, 8, 9], "debt", debt_micros=outcome.excess_micros, source="provider", error=error)


@pytest.mark.parametrize(("amount", "excess"), [(99, 0), (100, 0), (101, 1)])
def test_an_excess_begins_above_the_hold(amount: int, excess: int) -> None:
    outcome, moves = booked(HELD, replace(BILL, amount_micros=amount))
    assert outcome.excess_micros == excess and len(moves) == 1 + excess


@pytest.mark.parametrize("state", ["settled", "refunded"])
def test_a_second_bill_books_nothing(state: str) -> None:
    assert booked(HELD._replace(state=state, actual_micros=40), BILL) == (Settled("a", "repeated"), [])
    assert outcome_of("b", None, BILL) == Settled("b", "unknown")


def test_a_bill_is_estimated_where_its_tokens_or_its_amount_were() -> None:
    cases = [(USAGE, "provider", False), (replace(USAGE, estimated=True), "table", True), (None, "estimate", True),
             (None, "none", False)]  # fmt: skip
    for usage, source, estimated in cases:
        _, [move] = booked(HELD, Bill(40, usage, source))
        assert (move.estimated, move.source, move.latency_ms) == (estimated, source, 0)
        assert move.tokens == ((100, 20, 10, 5) if usage else (0, 0, 0, 0))


def test_texts_of_a_bill_are_cut_to_their_columns() -> None:
    _, [move] = booked(HELD, Bill(40, None, "a-source-too-long", error="\x00" + "e" * 2000))
    assert move.source == "a-source-too" and move.error == "\ufffd" + "e" * 999
    assert storable("a\x00b") == "a\ufffdb" and storable("abcdef", 3) == "abc"


@pytest.mark.parametrize(
    ("paced", "fresh", "bill", "change"),
    [
        (True, True, 40, -60),
        (True, True, 130, 30),
        (True, False, 40, 0),  # it was held in an earlier minute: this one gets no room of it
        (True, False, 100, 0),
        (True, False, 101, 1),
        (False, True, 40, 0),
        (False, False, 130, 0),
    ],
)
def test_a_hold_counts_for_the_minute_of_its_creation(paced: bool, fresh: bool, bill: int, change: int) -> None:
    row = HELD._replace(paced=paced, fresh=fresh)
    assert row.pace_micros(bill) == change
    _, moves = booked(row, replace(BILL, amount_micros=bill))
    assert moves[0].paced_micros == change
    assert HELD.paced and HELD.fresh


def test_a_row_names_its_budgets_and_its_scope() -> None:
    assert HELD.budgets == [7, 8, 9] and HELD._replace(organization_budget=None, agent_budget=None).budgets == [9]
    assert (HELD.covered_micros, CHARGED.covered_micros) == (100, 60)
    assert CHARGED._replace(actual_micros=None).covered_micros == 100
    assert HELD._replace(actual_micros=5).covered_micros == 100


@pytest.mark.parametrize(("highest", "charged"), [(None, 100), (30, 30), (0, 0), (100, 100), (101, 100)])
def test_a_hold_without_a_bill_is_charged_at_the_highest_cost_of_its_kind_and_at_most_in_whole(
    highest: int | None, charged: int
) -> None:
    error = "the hold was not settled in time"
    assert charge_of(HELD, highest) == Move(
        1, [7, 8, 9], "charge", charged, -100, 0, "charged", charged, (0, 0, 0, 0), 0, "estimate", True, error, 0
    )


@pytest.mark.parametrize("amount", [-1, 10**15 + 1])
def test_amounts_that_are_negative_or_beyond_reason_are_refused(amount: int) -> None:
    with pytest.raises(ValueError, match=f"The hold 'a' is of {amount} micro-dollars"):
        Hold("a", CHAIN, amount)
    with pytest.raises(ValueError, match=f"The bill of 'a' is of {amount} micro-dollars"):
        Settlement("a", Bill(amount, None, "none"))


def test_amounts_up_to_a_billion_dollars_are_taken() -> None:
    for amount in (0, 10**15):
        assert Hold("a", CHAIN, amount).amount_micros == amount
        assert Settlement("a", Bill(amount, None, "none")).bill.amount_micros == amount


def test_a_hold_that_lasts_longer_than_a_call_does_not_count_for_the_rate() -> None:
    assert LEASE == 600.0
    kept: dict[float, Any] = {lease: Hold("a", CHAIN, 1, lease=lease).paced for lease in (1.0, 600.0, 600.1)}
    assert kept == {1.0: True, 600.0: True, 600.1: False}
    fresh = Hold("a", CHAIN, 1)
    assert fresh.paced and not fresh.late and (fresh.purpose, fresh.model, fresh.rollout) == ("", "", "")


def test_a_refusal_is_of_the_limit_or_of_the_minute() -> None:
    refusal = LedgerRefusal(3, "job", 100, 60, 30, 11)
    error = refusal.error()
    assert type(error) is BudgetRefused and not isinstance(error, SpendingRateFull)
    assert (error.scope, error.limit_micros, error.spent_micros) == ("job", 100, 60)
    assert (error.reserved_micros, error.wanted_micros) == (30, 11)
    full = replace(refusal, wait=2.5).error()
    assert isinstance(full, SpendingRateFull) and full.retry_after == 2.5
    assert (full.limit_micros, full.spent_micros, full.wanted_micros) == (100, 60, 11)
    assert Reserved("a") == Reserved("a", state="", fresh=False, refusal=None)
