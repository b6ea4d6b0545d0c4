"""Sums of the ledger by days: with them reports say what the entries say, and read the days alone."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pytest
from django.db import connection

from agentcore_site.tenancy.actors import Actor
from budgets.ledger import Hold, charge_expired, reserve, reserve_many, settle
from budgets.ledger.accounts import Chain, chain_open, month_of
from budgets.ledger.days import agents_paid, days_sum, last_summed, midnight
from budgets.models import Budget, LedgerDay, LedgerEntry
from budgets.selectors import BY, between, breakdown, daily, ledger_visible, spending
from tests.budgets.support import bill, expire, hold, limits_set
from tests.factories import AgentFactory, OrganizationFactory
from tests.performance.scale import copied
from tests.support.owner import as_owner
from tests.support.plans import blocks_read

pytestmark = pytest.mark.django_db

FIRST = date(2024, 2, 26)  # of ten days: a month ends within them
DAYS = [FIRST + timedelta(days=n) for n in range(10)]
RANGES = [(None, None), (None, DAYS[4]), (DAYS[3], None), (DAYS[2], DAYS[6]), (DAYS[5], DAYS[5])]


def booked(chains: list[Chain], calls: int, first: int = 0) -> None:
    """Calls of any outcome: settled for less or for more than was held, charged, settled late, or still held."""
    for number in range(first, first + calls):
        key, amount, outcome = f"call {number}", random.randrange(1, 2_000), random.randrange(6)
        purpose, model = random.choice(("training", "production")), random.choice(("small", "big", ""))
        one = Hold(key, random.choice(chains), amount, purpose, model)
        if reserve_many([one])[0].refusal is not None or outcome == 0:
            continue
        if outcome in (1, 2):
            expire(key)
            charge_expired()
        if outcome != 1:
            settle(key, bill(random.randrange(0, 2 * amount)))


def entries_spread() -> None:
    """Each entry as if it had been written at another moment, often at the very end or beginning of a day."""
    with as_owner(), connection.cursor() as cursor:
        cursor.execute("ALTER TABLE budgets_ledgerentry DISABLE TRIGGER append_only")
        for pk in LedgerEntry.objects.values_list("pk", flat=True):
            of_day = random.choice((time(0), time(23, 59, 59, 999_999), time(random.randrange(24))))
            moment = datetime.combine(random.choice(DAYS), of_day, tzinfo=UTC)
            LedgerEntry.objects.filter(pk=pk).update(at=moment)
        cursor.execute("ALTER TABLE budgets_ledgerentry ENABLE TRIGGER append_only")


def of_entries(actor: Any, by: str, since: date | None, until: date | None, organization_id: Any) -> Any:
    rows = between(ledger_visible(actor), since, until).filter(organization_id=organization_id)
    return spending(rows, by)


def by_day_of_entries(budget: Budget) -> dict[date, int]:
    found = dict.fromkeys(DAYS, 0)
    column = {"organization": "organization_budget_id", "agent": "agent_budget_id", "job": "job_budget_id"}
    for entry in LedgerEntry.objects.filter(**{column[budget.scope]: budget.pk}):
        day = entry.at.astimezone(UTC).date()
        if day in found:
            found[day] += entry.spent_delta_micros + entry.debt_delta_micros
    return found


def added_up(parts: Iterable[tuple[Any, date, str, int]]) -> dict[Any, int]:
    found: dict[Any, int] = {}
    for agent_id, month, purpose, paid_micros in parts:
        found[agent_id, month, purpose] = found.get((agent_id, month, purpose), 0) + paid_micros
    return {key: paid_micros for key, paid_micros in found.items() if paid_micros}


def paid_by_entries(since: date) -> Iterator[tuple[Any, date, str, int]]:
    for entry in LedgerEntry.objects.exclude(agent_id=None).filter(at__gte=midnight(since)):
        paid_micros = entry.spent_delta_micros + entry.debt_delta_micros
        yield entry.agent_id, month_of(entry.at), entry.purpose, paid_micros


def test_reports_say_the_same_with_days_and_without_for_any_bookings(chain: Chain, stella: Any) -> None:
    other = AgentFactory(organization_id=chain.organization_id)
    limits_set(chain, None, 40_000, 20_000)
    chains = [
        chain,
        chain_open(chain.organization_id, agent_id=other.pk),
        chain_open(chain.organization_id),
        chain_open(chain.organization_id, agent_id=other.pk, month=date(2024, 2, 1)),
    ]
    agents, organization = [chain.agent_id, other.pk], chain.organization_id
    booked(chains, 60)
    entries_spread()
    assert not LedgerDay.objects.exists()

    def same() -> None:
        for by in BY:
            for since, until in RANGES:
                rows = breakdown(stella, by=by, since=since, until=until, organization_id=organization)
                assert rows == of_entries(stella, by, since, until, organization), (by, since, until)
        for budget in Budget.objects.all():
            assert dict(daily(budget, DAYS[0], DAYS[-1])) == by_day_of_entries(budget), budget
        found = added_up(agents_paid(agents, [organization], DAYS[1]))
        assert found == added_up(paid_by_entries(DAYS[1]))

    same()
    for day in sorted(random.sample(DAYS, 3)):
        days_sum(midnight(day) + timedelta(minutes=random.choice((0, 59, 60, 900))))
        same()
    days_sum()
    assert days_sum() == 0 and LedgerDay.objects.filter(group="day").count() == len(DAYS)
    same()
    booked(chains, 10, first=60)  # today
    same()


def test_a_day_is_summed_an_hour_after_its_end_and_once(chain: Chain) -> None:
    reserve(hold(chain, "a", 500))
    settle("a", bill(300))
    today = LedgerEntry.objects.latest("pk").at.astimezone(UTC).date()
    end = midnight(today + timedelta(days=1))
    assert days_sum(end + timedelta(minutes=59)) == 0
    assert days_sum(end + timedelta(minutes=60)) == 1
    assert days_sum(end + timedelta(days=9)) == 0
    assert list(LedgerDay.objects.filter(group="day").values_list("day", "cost_micros", "calls")) == [(today, 300, 1)]


def test_reports_of_days_that_are_over_read_no_entries(chain: Chain, stella: Any) -> None:
    """30 times as many entries of the same month, the same number of blocks."""
    month = (month_of() - timedelta(days=1)).replace(day=1)
    last = chain_open(chain.organization_id, agent_id=chain.agent_id, month=month)
    reserve(hold(last, "a", 500))
    settle("a", bill(300))
    entry = LedgerEntry.objects.latest("pk")
    until = month_of() - timedelta(days=1)

    def read() -> None:
        breakdown(Actor(stella), by="model", since=month, until=until, organization_id=chain.organization_id)
        daily(Budget.objects.get(pk=last.organization_budget), month, until)
        list(agents_paid([last.agent_id], [last.organization_id], month))

    def grown(numbers: tuple[int, int]) -> int:
        moment = f"timestamptz '{month} 00:00+00' + mod(n, 20) * interval '1 day'"
        copied(LedgerEntry, entry.pk, numbers, id=None, at=moment)
        LedgerDay.objects.all().delete()
        assert days_sum() == 20
        return blocks_read(read, LedgerEntry, LedgerDay)

    few = grown((1, 200))
    assert grown((201, 6_000)) <= 2 * few


def test_an_organisation_that_spends_nothing_keeps_no_report_of_others_from_their_days(chain: Chain) -> None:
    """One has never spent, one not for years: days are read up to yesterday all the same."""
    never, long_ago = OrganizationFactory(), OrganizationFactory()
    reserve(hold(chain_open(long_ago.pk), "old", 500))
    settle("old", bill(300))
    entries_spread()
    reserve(hold(chain, "new", 500))
    settle("new", bill(300))
    every = [chain.organization_id, never.pk, long_ago.pk]
    today = datetime.now(UTC).date()
    assert last_summed([]) is None and last_summed([never.pk]) is None and last_summed(every) is None
    old = LedgerEntry.objects.filter(organization_id=long_ago.pk, kind="settle").latest("at").at.astimezone(UTC).date()
    days_sum()
    assert last_summed([long_ago.pk]) == old
    assert last_summed(every) == today - timedelta(days=1)
    assert last_summed([chain.organization_id]) is None  # nothing of today is summed
    days_sum(midnight(today) + timedelta(days=2))
    assert last_summed(every) == today
