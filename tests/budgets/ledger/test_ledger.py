"""The ledger: what is held, what is booked, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import ProgrammingError, connection, transaction

from agentcore_site.jobs.models import Job
from budgets.ledger import Hold, UnknownHold, charge_expired, reserve, reserve_many, settle, settle_many
from budgets.ledger.accounts import Chain, chain_open
from budgets.ledger.reconciliation import differences
from budgets.ledger.values import Settlement
from budgets.meter_port import BudgetRefused
from budgets.models import Budget, BudgetAlert, LedgerEntry, Reservation
from budgets.services import budget_set_limit
from tests.budgets.support import balances, bill, expire, hold, limits_set
from tests.support.owner import as_owner

pytestmark = pytest.mark.django_db

CENT = 10_000


def test_ledger_holds_in_every_budget_and_settles_the_cost(chain: Chain) -> None:
    assert reserve(hold(chain, "a", 30 * CENT)).fresh
    assert balances(chain) == [(0, 30 * CENT, 0)] * 3
    assert settle("a", bill(12 * CENT)).state == "settled"
    assert balances(chain) == [(12 * CENT, 0, 0)] * 3


def test_ledger_refuses_what_does_not_fit_the_job_and_moves_nothing(chain: Chain) -> None:
    reserve(hold(chain, "a", 90 * CENT))
    with pytest.raises(BudgetRefused) as refused:
        reserve(hold(chain, "b", 11 * CENT))
    no = refused.value
    assert (no.scope, no.limit_micros, no.reserved_micros, no.wanted_micros) == (
        "job", 100 * CENT, 90 * CENT, 11 * CENT,
    )  # fmt: skip
    assert balances(chain) == [(0, 90 * CENT, 0)] * 3
    assert not Reservation.objects.filter(key="b").exists()


@pytest.mark.parametrize(("limits", "scope"), [((50, None, None), "organization"), ((None, 50, 10), "agent")])
def test_ledger_names_the_outermost_budget_that_refuses(chain: Chain, limits: Any, scope: str) -> None:
    limits_set(chain, *limits)
    with pytest.raises(BudgetRefused) as refused:
        reserve(hold(chain, "a", 51))
    assert refused.value.scope == scope


def test_ledger_admits_up_to_the_last_micro_dollar(chain: Chain) -> None:
    reserve(hold(chain, "a", 100 * CENT))
    with pytest.raises(BudgetRefused):
        reserve(hold(chain, "b", 1))
    settle("a", bill(100 * CENT - 1))
    reserve(hold(chain, "b", 1))


def test_nothing_asked_for_is_nothing_done(db: None) -> None:
    assert reserve_many([]) == settle_many([]) == []


def test_ledger_admits_a_batch_in_order_and_refuses_the_rest(chain: Chain) -> None:
    holds = [hold(chain, key, amount * CENT) for key, amount in [("z", 60), ("y", 60), ("x", 30), ("w", 20), ("v", 10)]]
    outcomes = reserve_many(holds)
    assert [outcome.key for outcome in outcomes] == ["z", "y", "x", "w", "v"]
    assert [outcome.refusal is None for outcome in outcomes] == [True, False, True, False, True]
    assert balances(chain) == [(0, 100 * CENT, 0)] * 3
    refused = outcomes[3].refusal
    assert refused is not None and refused.reserved_micros == 90 * CENT


def test_ledger_holds_a_key_once_and_answers_the_same_in_any_later_state(chain: Chain) -> None:
    assert reserve(hold(chain, "a", CENT)).fresh
    again = reserve(hold(chain, "a", CENT))
    assert (again.state, again.fresh) == ("held", False)
    assert balances(chain)[0] == (0, CENT, 0)
    settle("a", bill(1))
    assert reserve(hold(chain, "a", CENT)).state == "settled"
    assert balances(chain)[0] == (1, 0, 0)


def test_ledger_holds_a_key_once_within_a_batch(chain: Chain) -> None:
    first, second = reserve_many([hold(chain, "a", CENT), hold(chain, "a", CENT)])
    assert first == second and first.fresh
    assert balances(chain)[0] == (0, CENT, 0)


def test_ledger_may_ask_again_under_a_key_that_was_refused(chain: Chain) -> None:
    limits_set(chain, None, None, CENT)
    with pytest.raises(BudgetRefused):
        reserve(hold(chain, "a", 2 * CENT))
    limits_set(chain, None, None, 3 * CENT)
    assert reserve(hold(chain, "a", 2 * CENT)).fresh


def test_ledger_settles_once(chain: Chain) -> None:
    reserve(hold(chain, "a", CENT))
    assert settle("a", bill(400)).state == "settled"
    assert settle("a", bill(900)).state == "repeated"
    assert [one.state for one in settle_many([Settlement("a", bill(1)), Settlement("a", bill(2))])] == ["repeated"] * 2
    assert balances(chain)[0] == (400, 0, 0)


def test_ledger_says_that_nothing_is_held(chain: Chain) -> None:
    with pytest.raises(UnknownHold):
        settle("nobody", bill(1))
    reserve(hold(chain, "a", CENT))
    states = [one.state for one in settle_many([Settlement("nobody", bill(1)), Settlement("a", bill(1))])]
    assert states == ["unknown", "settled"]


def test_ledger_charges_an_expired_hold_in_full_and_refunds_a_late_settlement(chain: Chain) -> None:
    reserve_many([hold(chain, "a", 10 * CENT), hold(chain, "b", CENT)])
    assert charge_expired() == 0
    expire("a")
    assert charge_expired() == 1
    assert balances(chain) == [(10 * CENT, CENT, 0)] * 3
    assert settle("a", bill(3 * CENT)).state == "refunded"
    assert balances(chain) == [(3 * CENT, CENT, 0)] * 3
    assert settle("a", bill(0)).state == "repeated"
    row = Reservation.objects.get(key="a")
    assert (row.state, row.actual_micros) == ("refunded", 3 * CENT)


def lived(chain: Chain, calls: int, cost: int) -> None:
    """So many measured calls of the job, the most expensive of which cost ``cost``."""
    keys = [f"past{n}" for n in range(calls)]
    reserve_many([hold(chain, key, CENT // 10) for key in keys])
    settle_many([Settlement(key, bill(cost - n % 3)) for n, key in enumerate(keys)])


def test_an_expired_hold_is_charged_as_the_most_expensive_of_many_measured_calls(chain: Chain) -> None:
    lived(chain, 100, 600)
    before = balances(chain)[0][0]
    reserve(hold(chain, "a", CENT))
    expire("a")
    assert charge_expired() == 1
    assert balances(chain) == [(before + 600, 0, 0)] * 3
    assert Reservation.objects.get(key="a").actual_micros == 600 and differences() == []


@pytest.mark.parametrize("late", [100, 600, 900, 2 * CENT])
def test_a_late_bill_corrects_what_was_charged_and_stays_within_the_limit(chain: Chain, late: int) -> None:
    lived(chain, 100, 600)
    before = balances(chain)[0][0]
    reserve(hold(chain, "a", CENT))
    expire("a")
    charge_expired()
    room = 100 * CENT - before - 600  # of the job's limit
    reserve(hold(chain, "b", room))  # all that is left is held by another call
    settle("a", bill(late))
    spent, reserved, debt = balances(chain)[2]
    assert (spent + debt, reserved) == (before + late, room) and spent + reserved <= 100 * CENT
    assert differences() == []


def test_a_hold_of_which_little_is_known_is_charged_in_full(chain: Chain) -> None:
    lived(chain, 99, 600)
    reserve(hold(chain, "a", CENT))
    expire("a")
    charge_expired()
    assert Reservation.objects.get(key="a").actual_micros == CENT


def test_ledger_refunds_all_of_a_late_call_that_cost_nothing(chain: Chain) -> None:
    reserve(hold(chain, "a", CENT))
    expire()
    charge_expired()
    settle("a", bill(0))
    assert balances(chain) == [(0, 0, 0)] * 3


def test_ledger_books_a_bill_above_its_hold_whole_where_there_is_room(chain: Chain) -> None:
    reserve(hold(chain, "a", CENT))
    assert settle("a", bill(3 * CENT)).excess_micros == 2 * CENT
    assert balances(chain) == [(3 * CENT, 0, 0)] * 3
    incident = LedgerEntry.objects.get(kind="debt")
    assert incident.debt_delta_micros == 2 * CENT and str(3 * CENT) in incident.error


def test_ledger_owes_the_amount_beyond_the_limit_and_refuses_until_the_debt_is_paid(chain: Chain) -> None:
    reserve_many([hold(chain, "a", 60 * CENT), hold(chain, "b", 40 * CENT)])
    settle("a", bill(70 * CENT))
    assert balances(chain) == [(70 * CENT, 40 * CENT, 0)] * 2 + [(60 * CENT, 40 * CENT, 10 * CENT)]
    with pytest.raises(BudgetRefused) as refused:
        reserve(hold(chain, "c", 0))
    assert refused.value.spent_micros == 70 * CENT  # what is owed counts as spent
    settle("b", bill(5 * CENT))  # the rest of this hold pays the debt
    assert balances(chain) == [(75 * CENT, 0, 0)] * 3
    assert reserve(hold(chain, "c", CENT)).fresh


def test_ledger_owes_for_a_late_bill_above_its_hold(chain: Chain) -> None:
    reserve(hold(chain, "a", 100 * CENT))
    expire()
    charge_expired()
    settle("a", bill(101 * CENT))
    assert balances(chain)[2] == (100 * CENT, 0, CENT)
    assert balances(chain)[1] == (101 * CENT, 0, 0)


def test_ledger_refuses_to_run_in_a_transaction_that_could_be_rolled_back(chain: Chain) -> None:
    with transaction.atomic():
        for act in (
            lambda: reserve(hold(chain, "a", 1)),
            lambda: settle("a", bill(1)),
            charge_expired,
        ):
            with pytest.raises(RuntimeError):
                act()


@pytest.mark.parametrize("amount", [-1, 10**16])
def test_ledger_takes_no_amount_beyond_reason(chain: Chain, amount: int) -> None:
    with pytest.raises(ValueError):
        Hold("a", chain, amount)
    with pytest.raises(ValueError):
        Settlement("a", bill(amount))


def test_ledger_writes_the_details_and_the_cost_of_a_call(chain: Chain, job: Job) -> None:
    odd = Hold("a\ud800", chain, CENT, "training" * 5, "mo\x00del" * 99, 7, "3/1\x00")
    with pytest.raises(UnicodeEncodeError):
        reserve(odd)  # a key is never changed; it is ours
    reserve(Hold("a", chain, CENT, "training" * 5, "mo\x00del" * 99, 7, "3/1\x00"))
    settle("a", bill(123, error="cut\x00"))
    entry = LedgerEntry.objects.get(kind="settle")
    assert (entry.job_id, entry.iteration, entry.rollout, len(entry.model)) == (job.id, 7, "3/1\ufffd", 200)
    assert (entry.cost_micros, entry.input_tokens, entry.output_tokens, entry.cached_tokens) == (123, 100, 20, 10)
    assert (entry.latency_ms, entry.source, entry.error, entry.estimated) == (250, "provider", "cut\ufffd", False)


def test_the_database_refuses_to_change_what_was_booked(chain: Chain) -> None:
    reserve(hold(chain, "a", CENT))
    settle("a", bill(1))
    for act in (
        lambda: LedgerEntry.objects.update(spent_delta_micros=0),
        lambda: LedgerEntry.objects.all().delete(),
        lambda: Reservation.objects.update(state="held"),
        lambda: Reservation.objects.update(amount_micros=0),
    ):
        with pytest.raises(ProgrammingError), transaction.atomic():
            act()


def test_the_database_refuses_more_than_the_limit(chain: Chain) -> None:
    from django.db import IntegrityError

    for wrong in (
        {"spent_micros": 60 * CENT, "reserved_micros": 41 * CENT},
        {"spent_micros": -1},
        {"reserved_micros": -1},
        {"debt_micros": -1},
    ):
        with pytest.raises(IntegrityError), transaction.atomic():
            Budget.objects.filter(id=chain.job_budget).update(**wrong)


def test_ledger_alerts_once_at_each_share_of_the_limit(chain: Chain) -> None:
    def alerts() -> list[int]:
        return sorted(BudgetAlert.objects.filter(budget=chain.job_budget).values_list("threshold", flat=True))

    seen = []
    for n, amount in enumerate([74, 1, 14, 1, 1, 9]):
        reserve(hold(chain, str(n), amount * CENT))
        settle(str(n), bill(amount * CENT))
        seen.append(alerts())
    assert seen == [[], [75], [75], [75, 90], [75, 90], [75, 90, 100]]
    assert not BudgetAlert.objects.exclude(budget=chain.job_budget).exists()


def refused(chain: Chain, key: str, amount: int) -> None:
    with pytest.raises(BudgetRefused):
        reserve(hold(chain, key, amount))


def alerts(chain: Chain) -> list[tuple[int, int, int]]:
    """(threshold, limit, spent) of the job's alerts, oldest first."""
    rows = BudgetAlert.objects.filter(budget_id=chain.job_budget).order_by("created_at", "threshold")
    return list(rows.values_list("threshold", "limit_micros", "spent_micros"))


def test_ledger_alerts_that_a_budget_is_used_up_when_the_next_call_cannot_fit(chain: Chain) -> None:
    reserve(hold(chain, "a", 92 * CENT))
    for key in ("b", "c"):  # refused because of the other hold: that may come back
        refused(chain, key, 50 * CENT)
    assert not BudgetAlert.objects.exists()
    settle("a", bill(92 * CENT))
    for key in ("d", "e"):
        refused(chain, key, 50 * CENT)
    assert alerts(chain)[-1] == (100, 100 * CENT, 92 * CENT) and len(alerts(chain)) == 3


def test_an_expensive_call_that_a_fresh_budget_refuses_sends_no_alert(chain: Chain) -> None:
    refused(chain, "dear", 600 * CENT)
    assert not BudgetAlert.objects.exists()
    reserve(hold(chain, "all", 100 * CENT))
    settle("all", bill(100 * CENT))
    assert [one for one, _, _ in alerts(chain)] == [75, 90, 100]  # the true one is still sent


def test_the_thresholds_of_a_raised_limit_alert_again_and_those_of_an_unchanged_one_do_not(
    chain: Chain, job: Any, adam: Any
) -> None:
    def spend(key: str, cents: int) -> None:
        reserve(hold(chain, key, cents * CENT))
        settle(key, bill(cents * CENT))

    def limited(cents: int) -> None:
        budget_set_limit(
            adam, organization=job.organization, job=job, agent_id=chain.agent_id, limit_micros=cents * CENT
        )

    spend("a", 100)
    refused(chain, "b", CENT)
    assert [one for one, _, _ in alerts(chain)] == [75, 90, 100]
    limited(200)
    assert len(alerts(chain)) == 3  # half of it is spent: no news
    spend("c", 55)
    limited(200)
    assert alerts(chain)[3:] == [(75, 200 * CENT, 155 * CENT)]
    limited(165)  # what the new limit makes of the old spending, once
    assert alerts(chain)[4:] == [(90, 165 * CENT, 155 * CENT)]


def test_a_bill_above_its_hold_alerts_for_the_organisations_budget(chain: Chain) -> None:
    for key in ("a", "b"):
        reserve(hold(chain, key, 10 * CENT))
        settle(key, bill(13 * CENT))
    alert = BudgetAlert.objects.get()
    assert (alert.kind, alert.budget_id, alert.excess_micros) == ("above_hold", chain.organization_budget, 3 * CENT)


@pytest.mark.parametrize("table", ["budgets_ledgerentry", "budgets_budgetlimit"])
def test_the_books_can_not_be_truncated(chain: Chain, table: str) -> None:
    reserve(hold(chain, "a", CENT))
    with connection.cursor() as cursor:
        with as_owner():
            cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER no_truncate")  # off between tests, see conftest
        with pytest.raises(ProgrammingError, match="append-only: TRUNCATE"), transaction.atomic():
            cursor.execute(f"TRUNCATE {table}")
        with as_owner():
            cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER no_truncate")
    assert LedgerEntry.objects.count() == 1


def test_ledger_names_a_budget_that_is_gone(chain: Chain) -> None:
    gone = Chain(chain.organization_id, None, None, chain.month, organization_budget=10**9)
    with pytest.raises(LookupError, match="1000000000"):
        reserve(hold(gone, "a", 1))
    assert not Reservation.objects.exists()


def test_a_chain_has_only_what_there_is(chain: Chain, acme: Any) -> None:
    alone = chain_open(acme.id)
    assert alone.budgets == (chain.organization_budget,)
    reserve(hold(alone, "a", CENT))
    assert balances(chain) == [(0, CENT, 0), (0, 0, 0), (0, 0, 0)]


def test_ledger_does_few_statements_for_any_batch(chain: Chain) -> None:
    from django.test.utils import CaptureQueriesContext

    counts = []
    for first, size in ((0, 1), (100, 50)):
        keys = [str(first + n) for n in range(size)]
        with CaptureQueriesContext(connection) as queries:
            reserve_many([hold(chain, key, 1) for key in keys])
            settle_many([Settlement(key, bill(1)) for key in keys])
        counts.append(len(queries))
    assert counts[0] == counts[1] <= 10


def test_a_chain_is_of_a_job_or_of_the_playground(chain: Chain) -> None:
    with pytest.raises(ValueError, match="has no job"):
        chain_open(chain.organization_id, job_id=chain.job_id, playground=True)
