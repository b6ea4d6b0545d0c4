"""Limits: who sets them, what they refuse, what stays of them, and what a change does to money on its way."""

from __future__ import annotations

import threading
from datetime import date, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import ProgrammingError, connection, transaction
from django.utils import timezone

from agentcore_site.audit.models import AuditEvent
from agentcore_site.jobs.models import Job
from agentcore_site.lib.errors import Conflict, Forbidden, Insufficient, Invalid, Missing
from agentcore_site.tenancy.models import Organization
from budgets import services
from budgets.job_chain import chain_of
from budgets.ledger import charge_expired, reserve, settle
from budgets.ledger.accounts import BudgetOwner, Chain, chain_open, month_of, owners
from budgets.meter_port import BudgetRefused
from budgets.models import Budget, BudgetAlert, BudgetLimit, LedgerEntry, Reservation, Scope
from budgets.selectors import (
    alerts_standing,
    alerts_visible,
    budget_get,
    budget_preflight,
    budgets_visible,
    ledger_visible,
    limits_visible,
)
from budgets.services import ShownLimit, budget_change_limit, budget_open_job, budget_set_limit, limit_change
from budgets.views.chain import chain_shown
from tests.budgets.support import balances, bill, expire, hold, limits_set

pytestmark = pytest.mark.django_db

DOLLAR = 1_000_000
CENT = 10_000


def test_only_an_admin_of_the_organisation_sets_a_limit(
    acme: Organization, adam: Any, olivia: Any, dan: Any, stella: Any, charlie: Any
) -> None:
    for person in (olivia, dan, stella):
        with pytest.raises(Forbidden):
            budget_set_limit(person, organization=acme, limit_micros=DOLLAR)
    with pytest.raises(Missing):
        budget_set_limit(charlie, organization=acme, limit_micros=DOLLAR)
    assert budget_set_limit(adam, organization=acme, limit_micros=DOLLAR).limit_micros == DOLLAR


def test_history_keeps_who_changed_what_and_why(acme: Organization, adam: Any) -> None:
    budget_set_limit(adam, organization=acme, limit_micros=5 * DOLLAR, note="pilot")
    budget = budget_set_limit(adam, organization=acme, limit_micros=None)
    rows = limits_visible(adam, budget).order_by("id")
    assert [(row.before_micros, row.limit_micros, row.actor, row.note) for row in rows] == [
        (None, 5 * DOLLAR, "adam", "pilot"),
        (5 * DOLLAR, None, "adam", ""),
    ]
    event = AuditEvent.objects.filter(action="budget.changed").latest("at")
    assert (event.before, event.after) == ({"limit": 5 * DOLLAR}, {"limit": None, "note": ""})
    for act in (lambda: BudgetLimit.objects.update(limit_micros=1), lambda: BudgetLimit.objects.all().delete()):
        with pytest.raises(ProgrammingError), transaction.atomic():
            act()


def test_limit_below_what_is_spent_and_held_is_refused(chain: Chain, acme: Organization, adam: Any) -> None:
    reserve(hold(chain, "a", 30 * CENT))
    settle("a", bill(20 * CENT))
    reserve(hold(chain, "b", 50 * CENT))
    with pytest.raises(Invalid) as refused:
        budget_set_limit(adam, organization=acme, limit_micros=70 * CENT - 1)
    assert "$0.20 is spent and $0.50 is on hold" in refused.value.message
    assert "$0.70" in refused.value.fields["limit"]
    assert not BudgetLimit.objects.exists()
    assert budget_set_limit(adam, organization=acme, limit_micros=70 * CENT).left_micros == 0


@pytest.mark.parametrize("limit", [-1, 10**16])
def test_limits_that_make_no_sense_are_refused(acme: Organization, adam: Any, limit: int) -> None:
    with pytest.raises(Invalid):
        budget_set_limit(adam, organization=acme, limit_micros=limit)


def test_a_job_may_spend_a_hundred_dollars_unless_its_start_set_another_limit(job: Job, agent: Any) -> None:
    chain = chain_open(job.organization_id, job_id=job.id)
    assert Budget.objects.get(id=chain.job_budget).limit_micros == 100 * DOLLAR
    other = Job.objects.create(organization=job.organization, kind="training")
    budget = budget_open_job(job.created_by, other, agent_id=agent.id, limit_micros=3 * DOLLAR)
    assert (budget.limit_micros, budget.period, budget.agent_id) == (3 * DOLLAR, "total", agent.id)
    assert [room.scope for room in chain_of(other)] == ["organization", "agent", "job"]
    assert BudgetLimit.objects.get().actor == "olivia"


def test_organisations_and_agents_have_no_limit_until_a_person_sets_one(job: Job, agent: Any) -> None:
    chain = chain_open(job.organization_id, agent_id=agent.id)
    reserve(hold(chain, "a", 10**12))
    assert settle("a", bill(10**13)).excess_micros  # beyond its hold: there is room without a limit, so nothing is owed
    assert balances(chain) == [(10**13, 0, 0)] * 2
    assert reserve(hold(chain, "b", 1)).fresh


def test_a_raised_limit_lets_the_next_call_through_and_pays_debt_first(chain: Chain, job: Job, adam: Any) -> None:
    reserve(hold(chain, "a", 100 * CENT))
    settle("a", bill(130 * CENT))
    assert balances(chain)[2] == (100 * CENT, 0, 30 * CENT)
    budget_set_limit(adam, organization=job.organization_id, job=job, limit_micros=120 * CENT)
    assert balances(chain)[2] == (120 * CENT, 0, 10 * CENT)
    with pytest.raises(BudgetRefused):
        reserve(hold(chain, "b", 1))
    budget_set_limit(adam, organization=job.organization_id, job=job, limit_micros=140 * CENT)
    assert balances(chain)[2] == (130 * CENT, 0, 0)
    assert reserve(hold(chain, "b", 10 * CENT)).fresh
    paid = LedgerEntry.objects.filter(kind="adjust", job_budget_id=chain.job_budget).order_by("id")
    assert [
        (one.job_budget_id, one.organization_budget_id, one.spent_delta_micros, one.debt_delta_micros) for one in paid
    ] == [
        (chain.job_budget, None, 20 * CENT, -20 * CENT),
        (chain.job_budget, None, 10 * CENT, -10 * CENT),
    ]


def test_a_lowered_limit_alerts_of_the_passed_thresholds(chain: Chain, acme: Organization, adam: Any) -> None:
    reserve(hold(chain, "a", 60 * CENT))
    settle("a", bill(60 * CENT))
    budget_set_limit(adam, organization=acme, limit_micros=80 * CENT)
    assert [one.threshold for one in BudgetAlert.objects.all()] == [75]
    budget_set_limit(adam, organization=acme, limit_micros=65 * CENT)
    assert sorted(one.threshold for one in BudgetAlert.objects.all()) == [75, 90]


def test_a_new_month_begins_with_the_standing_limit_and_nothing_spent(
    chain: Chain, acme: Organization, adam: Any
) -> None:
    budget_set_limit(adam, organization=acme, limit_micros=7 * DOLLAR)
    reserve(hold(chain, "a", CENT))
    later = (chain.month + timedelta(days=40)).replace(day=1)
    next_chain = chain_open(acme.id, agent_id=chain.agent_id, job_id=chain.job_id, month=later)
    assert next_chain.job_budget == chain.job_budget
    fresh = Budget.objects.get(id=next_chain.organization_budget)
    assert (fresh.limit_micros, fresh.spent_micros, fresh.reserved_micros, fresh.period_start) == (
        7 * DOLLAR,
        0,
        0,
        later,
    )
    settle("a", bill(100))
    assert balances(chain)[0] == (100, 0, 0)


def test_a_hold_of_last_month_is_charged_to_last_month(acme: Organization) -> None:
    before = chain_open(acme.id, month=date(2020, 1, 1))
    reserve(hold(before, "a", CENT))
    expire()
    assert charge_expired() == 1
    assert balances(before) == [(CENT, 0, 0)]
    assert balances(chain_open(acme.id)) == [(0, 0, 0)]


def test_a_stranger_who_names_our_agent_changes_nothing_for_us(
    chain: Chain, elsewhere: Organization, charlie: Any
) -> None:
    charlie.memberships.update(role="admin")
    with pytest.raises(Missing):
        budget_set_limit(charlie, organization=elsewhere, agent_id=chain.agent_id, limit_micros=0)
    limit_change(
        None, BudgetOwner(elsewhere.id, Scope.AGENT, chain.agent_id, chain.agent_id), 0
    )  # despite the answer of the service
    assert chain_open(chain.organization_id, agent_id=chain.agent_id, job_id=chain.job_id) == chain
    assert reserve(hold(chain, "a", CENT)).fresh
    with pytest.raises(Missing):
        budget_set_limit(charlie, organization=elsewhere, job=Job.objects.get(id=chain.job_id), limit_micros=0)


def test_a_limit_for_an_agent_that_is_not_there_is_refused_and_makes_no_budget(acme: Organization, adam: Any) -> None:
    with pytest.raises(Missing, match="Choose one of its agents"):
        budget_set_limit(adam, organization=acme, agent_id=uuid4(), limit_micros=CENT)
    assert not Budget.objects.exists() and not BudgetLimit.objects.exists()


def test_a_limit_that_changed_since_the_page_was_shown_is_kept(chain: Chain, adam: Any) -> None:
    budget = Budget.objects.get(id=chain.job_budget)
    budget_change_limit(adam, budget, 300 * CENT, shown=ShownLimit(100 * CENT))
    with pytest.raises(Conflict, match=r"it is \$3.00 now"):
        budget_change_limit(adam, budget, 200 * CENT, shown=ShownLimit(100 * CENT))
    budget.refresh_from_db()
    assert budget.limit_micros == 300 * CENT


def test_a_raised_budget_keeps_only_the_alerts_of_its_new_limit(chain: Chain, job: Job, adam: Any) -> None:
    since = timezone.now() - timedelta(hours=1)
    reserve(hold(chain, "a", 100 * CENT))
    settle("a", bill(100 * CENT))
    assert [one.threshold for one in alerts_standing(adam, since=since, limit=9)] == [100]
    budget_set_limit(adam, organization=job.organization, job=job, agent_id=chain.agent_id, limit_micros=200 * CENT)
    assert alerts_standing(adam, since=since, limit=9) == []
    reserve(hold(chain, "b", 55 * CENT))
    settle("b", bill(55 * CENT))
    assert [one.threshold for one in alerts_standing(adam, since=since, limit=9)] == [75]


def test_each_organisation_sees_its_own(chain: Chain, job: Job, stella: Any, charlie: Any) -> None:
    reserve(hold(chain, "a", 100 * CENT))
    settle("a", bill(100 * CENT))
    assert budgets_visible(stella, month=chain.month).count() == 3
    assert ledger_visible(stella).count() == 2 and Reservation.objects.visible_to(stella).count() == 1
    assert alerts_visible(stella).count() == 3
    assert [link.room.spent_micros for link in chain_shown(stella, job).links] == [100 * CENT] * 3
    for rows in (budgets_visible, ledger_visible, Reservation.objects.visible_to, alerts_visible, limits_visible):
        assert rows(charlie).count() == 0
    for act in (lambda: budget_get(charlie, chain.job_budget), lambda: chain_shown(charlie, job)):
        with pytest.raises(Missing):
            act()
    assert budget_get(stella, chain.job_budget).id == chain.job_budget


def test_preflight_says_what_does_not_fit_and_where(chain: Chain, acme: Organization) -> None:
    def ask(wanted: int, job_limit: int | None = None) -> Any:
        return budget_preflight(
            organization_id=acme.id, agent_id=chain.agent_id, wanted_micros=wanted, job_limit_micros=job_limit
        )

    assert [room.left_micros for room in ask(5 * DOLLAR)] == [10 * DOLLAR, 5 * DOLLAR]
    with pytest.raises(Insufficient) as refused:
        ask(5 * DOLLAR + 1)
    assert "this agent's budget has $5.00 left of $5.00" in refused.value.message
    with pytest.raises(Insufficient, match="this job's budget"):
        ask(3 * DOLLAR, job_limit=2 * DOLLAR)
    limits_set(chain, DOLLAR, None, None)
    reserve(hold(chain, "a", 40 * CENT))
    with pytest.raises(Insufficient, match=r"your organisation's budget has \$0.60 left of \$1.00 .*\$0.40 on hold"):
        ask(61 * CENT)
    assert refused.value.code == 507


def test_a_preflight_opens_no_budget(acme: Organization, agent: Any) -> None:
    rooms = budget_preflight(organization_id=acme.id, agent_id=agent.id, wanted_micros=DOLLAR, job_limit_micros=DOLLAR)
    assert [(room.scope, room.left_micros) for room in rooms] == [
        ("organization", None),
        ("agent", None),
        ("job", DOLLAR),
    ]
    assert not Budget.objects.exists()


# -- at the same time --------------------------------------------------------------------------------------------------


def at_once(*acts: Any) -> list[Any]:
    """Each in a thread with a connection of its own, begun together; what they returned or raised."""
    results: list[Any] = [None] * len(acts)
    barrier = threading.Barrier(len(acts))

    def run(place: int) -> None:
        try:
            barrier.wait(20)
            results[place] = acts[place]()
        except Exception as error:
            results[place] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=[place]) for place in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


@pytest.mark.django_db(transaction=True)
def test_many_who_open_the_same_month_open_one_row(job: Job, agent: Any) -> None:
    chains = at_once(*[lambda: chain_open(job.organization_id, agent_id=agent.id, job_id=job.id)] * 8)
    assert len(set(chains)) == 1 and isinstance(chains[0], Chain)
    assert Budget.objects.count() == 3


@pytest.mark.django_db(transaction=True)
def test_the_same_key_from_everywhere_is_held_and_settled_once(chain: Chain) -> None:
    for n in range(5):
        outcomes = at_once(*[lambda n=n: reserve(hold(chain, f"k{n}", CENT))] * 8)
        assert sum(one.fresh for one in outcomes) == 1 and {one.state for one in outcomes} == {"held"}
        outcomes = at_once(*[lambda n=n: settle(f"k{n}", bill(100))] * 8)
        assert sorted(one.state for one in outcomes) == ["repeated"] * 7 + ["settled"]
    assert balances(chain) == [(500, 0, 0)] * 3


@pytest.mark.django_db(transaction=True)
def test_the_sweep_and_a_late_settlement_at_once_come_to_the_true_cost(chain: Chain) -> None:
    for n in range(10):
        reserve(hold(chain, f"k{n}", CENT))
        expire()
        at_once(charge_expired, charge_expired, lambda n=n: settle(f"k{n}", bill(100)))
        charge_expired()
        assert balances(chain) == [(100 * (n + 1), 0, 0)] * 3


@pytest.mark.django_db(transaction=True)
def test_the_last_room_is_taken_once(chain: Chain) -> None:
    for n in range(5):
        limits_set(chain, None, None, (n + 1) * CENT)
        outcomes = at_once(*[lambda n=n, k=k: reserve(hold(chain, f"{n}-{k}", CENT)) for k in range(8)])
        assert sum(isinstance(one, BudgetRefused) for one in outcomes) == 7


@pytest.mark.django_db(transaction=True)
def test_a_month_that_begins_while_a_limit_is_changed_has_the_new_one(
    acme: Organization, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = owners(acme.id)[0]
    limit_change(None, owner, DOLLAR)
    following = (month_of() + timedelta(days=40)).replace(day=1)
    changing, go_on = threading.Event(), threading.Event()
    posted = services.post

    def slow(*args: Any) -> None:
        changing.set()  # the rows that there are have the new limit, nothing is committed: the month begins now
        go_on.wait(0.5)
        posted(*args)

    def change() -> None:
        monkeypatch.setattr(services, "post", slow)
        limit_change(None, owner, 2 * DOLLAR)

    def begin() -> None:
        changing.wait(20)
        chain_open(acme.id, month=following)
        go_on.set()

    assert at_once(change, begin) == [None, None]
    assert Budget.objects.get(scope=Scope.ORGANIZATION, period_start=following).limit_micros == 2 * DOLLAR
