"""The port to the ledger: what a refusal says, and the meter that counts and never refuses."""

from __future__ import annotations

import pickle

import pytest

from budgets.meter_port import Bill, BudgetRefused, CallKey, FreeMeter
from budgets.pricing import Usage

CALL = CallKey("job/1/1", "training", "small")


def test_a_refusal_says_which_budget_and_what_is_left() -> None:
    error = BudgetRefused(
        scope="job", limit_micros=2_000_000, spent_micros=1_500_000, reserved_micros=400_000, wanted_micros=250_000
    )
    assert (error.scope, error.limit_micros, error.spent_micros, error.reserved_micros, error.wanted_micros) == (
        *("job", 2_000_000, 1_500_000, 400_000, 250_000),
    )
    assert "job's budget" in str(error) and "$0.25" in str(error) and "$0.10 of $2.00 is left" in str(error)


def test_a_refusal_never_shows_less_than_nothing_left() -> None:
    assert "$0.00 of $1.00 is left" in str(BudgetRefused("agent", 1_000_000, 1_300_000, 0, 5))


def test_a_refusal_survives_a_pickle() -> None:
    error = pickle.loads(pickle.dumps(BudgetRefused("agent", 5, 4, 3, 2)))
    assert (error.scope, error.limit_micros, error.spent_micros, error.reserved_micros, error.wanted_micros) == (
        "agent",
        5,
        4,
        3,
        2,
    )


async def test_the_free_meter_counts_what_is_held_and_what_is_spent() -> None:
    meter = FreeMeter()
    await meter.reserve(CALL, 500)
    assert (meter.reserved_micros, meter.spent_micros) == (500, 0)
    await meter.settle(CALL, Bill(120, Usage(10, 5), "table"))
    assert (meter.reserved_micros, meter.spent_micros) == (0, 120)
    assert meter.calls[CALL.key] is CALL


async def test_the_free_meter_settles_once() -> None:
    meter = FreeMeter()
    await meter.reserve(CALL, 500)
    await meter.settle(CALL, Bill(120, None, "table"))
    await meter.settle(CALL, Bill(499, None, "table"))
    assert meter.spent_micros == 120


async def test_the_free_meter_catches_a_caller_who_holds_twice_or_settles_unheld() -> None:
    meter = FreeMeter()
    with pytest.raises(ValueError, match="never held"):
        await meter.settle(CALL, Bill(1, None, "table"))
    await meter.reserve(CALL, 500)
    with pytest.raises(ValueError, match="held already"):
        await meter.reserve(CALL, 500)
