"""The brake on dollars a minute: what it lets pass, what it stops, and what it says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections

from agentcore_site.jobs.models import Job
from budgets.ledger import reserve_many, settle_many
from budgets.ledger.accounts import Chain
from budgets.ledger.values import Settlement
from budgets.meter_port import Bill, CallKey, SpendingTooFast
from budgets.metering.database_meter import DatabaseMeter
from budgets.metering.rate_limiter import SpendingRateLimiter, Spent
from budgets.metering.spending_rate import job_spent_lately, site_rate_limiter
from tests.budgets.support import bill, hold

DOLLAR = 1_000_000
CENT = 10_000


@pytest.mark.parametrize(
    ("minute", "needed", "stops"),
    [
        (0, 0, False),
        (DOLLAR, 0, False),  # the floor
        (DOLLAR + 1, 0, True),  # nothing was answered
        (50 * DOLLAR, 20 * DOLLAR, False),  # dear, and needed
        (50 * DOLLAR, 9 * DOLLAR, True),
        (45 * DOLLAR, 9 * DOLLAR, False),
    ],
)
def test_brake_stops_what_is_far_above_what_answers_need(minute: int, needed: int, stops: bool) -> None:
    assert bool(SpendingRateLimiter(5, DOLLAR).refusal(Spent(minute, needed))) is stops


def test_brake_names_the_rate_and_the_limit() -> None:
    refusal = SpendingRateLimiter(5, DOLLAR).refusal(Spent(12_340_000, 500_000))
    assert "$12.34" in refusal and "$0.50" in refusal and "more than $2.50 a minute" in refusal


def test_a_factor_of_zero_turns_the_limiter_off() -> None:
    assert SpendingRateLimiter(0, DOLLAR).refusal(Spent(10**12, 0)) == ""


def test_brake_is_on_by_default() -> None:
    assert site_rate_limiter() == SpendingRateLimiter(5, DOLLAR)


def charged(chain: Chain, name: str, calls: int, amount: int, *, error: str = "") -> None:
    keys = [f"{name}{n}" for n in range(calls)]
    reserve_many([hold(chain, key, amount) for key in keys])
    one = bill(amount) if not error else Bill(amount, None, "estimate", error=error)
    settle_many([Settlement(key, one) for key in keys])


@pytest.mark.django_db(transaction=True)
def test_the_cost_of_failed_calls_counts_for_the_rate_and_not_for_the_need(chain: Chain) -> None:
    charged(chain, "good", 10, CENT)
    charged(chain, "bad", 3, 20 * CENT, error="Overloaded: 500")
    assert chain.job_id is not None
    spent = job_spent_lately(chain.organization_id, chain.job_id)
    assert spent == Spent(minute_micros=70 * CENT, needed_micros=10 * CENT)


@pytest.mark.django_db(transaction=True)
async def test_a_job_that_spends_too_fast_makes_no_further_call(chain: Chain, job: Job, settings: Any) -> None:
    settings.SPENDING_BRAKE_FLOOR_USD = 0.10
    extra = {"agent_id": chain.agent_id, "job_id": chain.job_id}

    async def tried(key: str) -> None:
        async with DatabaseMeter(organization_id=chain.organization_id, **extra) as meter:
            for n in range(2):
                await meter.reserve(CallKey(f"{key}{n}", "training", "small"), CENT)
                await meter.settle(CallKey(f"{key}{n}", "training", "small"), bill(CENT))

    await sync_to_async(charged)(chain, "good", 2, CENT)
    await tried("a")
    await sync_to_async(charged)(chain, "bad", 3, 10 * CENT, error="Overloaded: 500")
    with pytest.raises(SpendingTooFast, match=r"\$0\.34 in the last minute"):
        await tried("b")
    settings.SPENDING_BRAKE_FACTOR = 0
    await tried("c")
    await asyncio.sleep(0)
    await sync_to_async(connections.close_all)()
