"""Dollars a minute of an organisation: what waits, for how long, and what does not count."""

from __future__ import annotations

import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections
from django.db.models import F

from agentcore_site.audit.models import AuditEvent
from agentcore_site.jobs.models import Job
from agentcore_site.lib.errors import Invalid
from agentcore_site.tenancy.models import Organization
from budgets.ledger import LEASE, charge_expired, reserve, reserve_many, settle
from budgets.ledger.accounts import Chain, chain_open
from budgets.meter_port import BudgetRefused, CallKey, SpendingRateFull
from budgets.metering.database_meter import DatabaseMeter
from budgets.metering.patient_meter import PatientMeter
from budgets.models import Budget, BudgetAlert, BudgetSettings, Reservation
from budgets.services import budget_settings_set
from tests.budgets.support import balances, bill, expire, hold, limits_set
from tests.support.pages import html

CENT = 10_000
RATE = 60 * CENT  # a cent a second

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def slow(chain: Chain) -> Chain:
    BudgetSettings.objects.create(organization_id=chain.organization_id, most_per_minute_micros=RATE)
    limits_set(chain, None, None, None)
    return chain


def refused(chain: Chain, key: str, amount: int, **extra: Any) -> SpendingRateFull:
    with pytest.raises(SpendingRateFull) as found:
        reserve(hold(chain, key, amount, **extra))
    return found.value


def earlier(chain: Chain, seconds: float) -> None:
    """As if so many seconds had gone by since the last call."""
    Budget.objects.filter(id=chain.organization_budget).update(minute_at=F("minute_at") - timedelta(seconds=seconds))


def test_a_call_beyond_the_rate_gets_the_seconds_to_wait(slow: Chain) -> None:
    reserve(hold(slow, "a", 40 * CENT))
    full = refused(slow, "b", 30 * CENT)
    assert 9 < full.retry_after <= 10 and "$0.60 a minute" in str(full) and full.scope == "organization"
    assert not Reservation.objects.filter(key="b").exists() and not BudgetAlert.objects.exists()
    earlier(slow, 10)
    reserve(hold(slow, "b", 30 * CENT))
    again = pickle.loads(pickle.dumps(full))
    assert (str(again), again.retry_after) == (str(full), full.retry_after)


def test_a_call_below_its_hold_makes_room_and_a_call_above_its_hold_takes_room(slow: Chain) -> None:
    reserve(hold(slow, "a", 50 * CENT))
    settle("a", bill(5 * CENT))
    reserve(hold(slow, "b", 50 * CENT))
    settle("b", bill(54 * CENT))
    assert 3 < refused(slow, "c", 5 * CENT).retry_after <= 4


def test_a_hold_of_an_earlier_minute_gives_no_room_back_in_this_one(slow: Chain) -> None:
    reserve(hold(slow, "old", 60 * CENT))
    made = Reservation.objects.filter(key="old")
    assert made.exists()
    earlier(slow, 60)
    reserve(hold(slow, "a", 60 * CENT))
    expire("old")
    charge_expired()  # as after ten minutes
    settle("old", bill(CENT))
    assert refused(slow, "b", CENT).retry_after > 0


def test_many_in_one_batch_fill_the_minute_and_the_rest_is_refused(slow: Chain) -> None:
    made = reserve_many([hold(slow, str(n), 10 * CENT) for n in range(9)])
    assert [one.refusal is None for one in made] == [True] * 6 + [False] * 3
    assert {type(one.refusal.error()) for one in made if one.refusal} == {SpendingRateFull}
    assert balances(slow)[0] == (0, 60 * CENT, 0)


def test_a_call_dearer_than_a_minute_waits_for_an_empty_one(slow: Chain) -> None:
    reserve(hold(slow, "a", CENT))
    assert refused(slow, "dear", 90 * CENT).retry_after <= 1
    earlier(slow, 1)
    reserve(hold(slow, "dear", 90 * CENT))
    assert 29 < refused(slow, "b", 60 * CENT).retry_after <= 91


def test_a_limit_says_no_before_the_rate_says_later(slow: Chain) -> None:
    limits_set(slow, None, None, 100 * CENT)
    with pytest.raises(BudgetRefused) as found:
        reserve(hold(slow, "a", 110 * CENT))
    assert type(found.value) is BudgetRefused and found.value.scope == "job"


def test_trainings_elsewhere_and_what_is_spent_already_are_no_calls(slow: Chain) -> None:
    reserve(hold(slow, "elsewhere", 50 * CENT, lease=LEASE * 10))
    reserve(hold(slow, "a", 60 * CENT))
    settle("elsewhere", bill(CENT))
    assert refused(slow, "b", CENT).retry_after <= 1
    reserve(hold(slow, "spent", 0, late=True))
    settle("spent", bill(10 * CENT))
    assert 10 < refused(slow, "b", CENT).retry_after <= 11


def test_others_are_not_held_up_and_without_a_rate_nothing_is_noted(slow: Chain, elsewhere: Organization) -> None:
    theirs = chain_open(elsewhere.id)
    reserve(hold(slow, "a", 60 * CENT))
    for n in range(10):
        reserve(hold(theirs, f"theirs{n}", 60 * CENT))
    row = Budget.objects.get(id=theirs.organization_budget)
    assert (row.minute_level_micros, row.minute_at) == (0, None)


def test_at_no_moment_more_is_held_than_the_rate_and_what_ran_off(slow: Chain) -> None:
    """Eight hosts at once ask for what is six times as much."""
    began = time.monotonic()

    def host(name: int) -> int:
        try:
            made = [reserve_many([hold(slow, f"{name}/{n}", 3 * CENT)])[0] for n in range(15)]
            return sum(3 * CENT for one in made if one.refusal is None)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as hosts:
        held = sum(hosts.map(host, range(8)))
    most = RATE * (1 + (time.monotonic() - began) / 60)
    assert RATE - 3 * CENT < held <= most
    assert Budget.objects.get(id=slow.organization_budget).reserved_micros == held


async def test_calls_of_a_job_wait_for_their_turn(slow: Chain) -> None:
    ids = {"organization_id": slow.organization_id, "agent_id": slow.agent_id, "job_id": slow.job_id}
    async with DatabaseMeter(**ids) as meter:
        patient, began = PatientMeter(meter), time.monotonic()
        for n in range(2):  # 60 cents fill the minute, two more are two seconds
            await patient.reserve(CallKey(str(n), "training", "small"), (60 if n == 0 else 2) * CENT)
        assert 1.5 < time.monotonic() - began < 20
        with pytest.raises(SpendingRateFull):
            await PatientMeter(meter, wait_s=1).reserve(CallKey("2", "training", "small"), 20 * CENT)
    await sync_to_async(connections.close_all)()


def test_an_admin_sets_the_rate_on_the_page_and_the_audit_log_says_so(
    client: Any, adam: Any, acme: Organization
) -> None:
    client.force_login(adam)
    kept = {"webhook_url": "", "email_admins": "on"}
    for wrong in ("0", "-1", "much"):
        answer = client.post("/budgets/settings/", kept | {"most_per_minute": wrong})
        assert answer.status_code == 400 and f'value="{wrong}"' in html(answer)
    assert client.post("/budgets/settings/", kept | {"most_per_minute": "2.50"}).status_code == 302
    assert BudgetSettings.objects.get().most_per_minute_micros == 250 * CENT
    assert 'value="2.50"' in html(client.get("/budgets/settings/"))
    client.post("/budgets/settings/secret/")
    assert BudgetSettings.objects.get().most_per_minute_micros == 250 * CENT
    assert client.post("/budgets/settings/", kept | {"most_per_minute": ""}).status_code == 302
    assert BudgetSettings.objects.get().most_per_minute_micros is None
    found = [one.after["most_per_minute"] for one in AuditEvent.objects.filter(action="budget.settings_changed")]
    assert sorted(found, key=str) == [2_500_000, 2_500_000, None]


def test_an_operator_may_not(olivia: Any, acme: Organization, job: Job) -> None:
    from agentcore_site.lib.errors import Forbidden

    with pytest.raises(Forbidden):
        budget_settings_set(olivia, acme, most_per_minute_micros=CENT)
    assert not BudgetSettings.objects.exists()


def test_a_rate_of_nothing_is_refused(adam: Any, acme: Organization) -> None:
    for wrong in (0, -1, 10**16):
        with pytest.raises(Invalid):
            budget_settings_set(adam, acme, most_per_minute_micros=wrong)
