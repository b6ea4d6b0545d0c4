"""Any sequence of holds, bills, expiries and limits: the ledger does what a page of plain Python does."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentcore_site.ids import uuid7
from agentcore_site.jobs.models import Job
from agentcore_site.lib.errors import Invalid
from budgets.ledger import Hold, charge_expired, reserve_many, settle_many
from budgets.ledger.accounts import chain_open, owners
from budgets.ledger.reconciliation import differences
from budgets.ledger.values import Settlement
from budgets.meter_port import Bill
from budgets.services import limit_change
from tests import factories
from tests.budgets.support import balances
from tests.support.rounds import rounds

pytestmark = pytest.mark.django_db


@dataclass
class Account:
    limit: int | None = None
    spent: int = 0
    reserved: int = 0
    debt: int = 0

    def fits(self, amount: int) -> bool:
        return self.debt == 0 and (self.limit is None or self.spent + self.reserved + amount <= self.limit)

    def pay(self) -> None:
        while self.debt and (self.limit is None or self.spent + self.reserved < self.limit):
            self.spent, self.debt = self.spent + 1, self.debt - 1


@dataclass
class Book:
    """The reference: three accounts, and what became of each key. ``depth``: how many of them a key is charged to."""

    accounts: list[Account] = field(default_factory=lambda: [Account(), Account(), Account()])
    keys: dict[int, tuple[str, int, int, bool]] = field(default_factory=dict)  # state, depth, amount, short

    def reserve(self, key: int, depth: int, amount: int, short: bool) -> str:
        if key in self.keys:
            return self.keys[key][0]
        if not all(account.fits(amount) for account in self.accounts[:depth]):
            return ""
        for account in self.accounts[:depth]:
            account.reserved += amount
        self.keys[key] = ("held", depth, amount, short)
        return "held"

    def settle(self, key: int, cost: int) -> str:
        state, depth, amount, short = self.keys.get(key, ("unknown", 0, 0, False))
        if state in ("unknown", "settled", "refunded"):
            return "unknown" if state == "unknown" else "repeated"
        for account in self.accounts[:depth]:
            if state == "held":
                account.reserved -= amount
                account.spent += min(cost, amount)
            else:
                account.spent -= amount - min(cost, amount)
            account.debt += max(0, cost - amount)
            account.pay()
        self.keys[key] = ("settled" if state == "held" else "refunded", depth, amount, short)
        return self.keys[key][0]

    def charge(self) -> int:
        expired = [key for key, (state, _, _, short) in self.keys.items() if short and state == "held"]
        for key in expired:
            _, depth, amount, short = self.keys[key]
            self.keys[key] = ("charged", depth, amount, short)
            for account in self.accounts[:depth]:
                account.reserved -= amount
                account.spent += amount
        return len(expired)

    def limit(self, which: int, limit: int | None) -> bool:
        account = self.accounts[which]
        if limit is not None and account.spent + account.reserved > limit:
            return False
        account.limit = limit
        account.pay()
        return True


KEYS, AMOUNTS = st.integers(0, 11), st.integers(0, 60)
HOLDS = st.tuples(KEYS, st.integers(1, 3), AMOUNTS, st.booleans())
ACTS = st.one_of(
    st.tuples(st.just("reserve"), st.lists(HOLDS, min_size=1, max_size=4, unique_by=lambda one: one[0])),
    st.tuples(st.just("settle"), st.tuples(KEYS, st.integers(0, 90))),
    st.tuples(st.just("charge"), st.none()),
    st.tuples(st.just("limit"), st.tuples(st.integers(0, 2), st.none() | st.integers(0, 200))),
)


@pytest.mark.rounds
@settings(
    max_examples=rounds(25, 60),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(acts=st.lists(ACTS, min_size=5, max_size=25))
def test_the_ledger_does_what_the_book_does(acts: list[Any]) -> None:
    home = factories.OrganizationFactory()
    agent, job = uuid7(), Job.objects.create(organization=home, kind="training")
    three = owners(home.id, agent, job.id)
    limit_change(None, three[2], None)
    chains = [
        chain_open(home.id),
        chain_open(home.id, agent_id=agent),
        chain_open(home.id, agent_id=agent, job_id=job.id),
    ]
    book = Book()

    def named(key: int) -> str:
        return f"{home.id}/{key}"

    for act, what in acts:
        if act == "reserve":
            holds = [
                Hold(named(key), chains[depth - 1], amount, lease=0.0 if short else 600.0)
                for key, depth, amount, short in what
            ]
            assert [one.state for one in reserve_many(holds)] == [book.reserve(*one) for one in what]
        elif act == "settle":
            key, cost = what
            [outcome] = settle_many([Settlement(named(key), Bill(cost, None, "table"))])
            assert outcome.state == book.settle(key, cost)
        elif act == "charge":
            assert charge_expired() == book.charge()
        else:
            which, limit = what
            try:
                with transaction.atomic():
                    limit_change(None, three[which], limit)
                done = True
            except Invalid:
                done = False
            assert done == book.limit(which, limit)
        assert balances(chains[2]) == [(one.spent, one.reserved, one.debt) for one in book.accounts]
        for account in book.accounts:
            assert account.limit is None or account.spent + account.reserved <= account.limit
    charge_expired()
    assert differences() == []
