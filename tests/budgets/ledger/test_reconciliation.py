"""``ledger_check`` finds every kind of wrong balance, and nothing where all is right."""

from __future__ import annotations

import io
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from budgets.ledger import charge_expired, reserve, reserve_many, settle
from budgets.ledger.accounts import Chain
from budgets.ledger.reconciliation import differences
from budgets.models import Budget
from tests.budgets.support import bill, expire, hold, limits_set
from tests.support.owner import as_owner

pytestmark = pytest.mark.django_db

CENT = 10_000


def lived(chain: Chain) -> None:
    """Every kind of entry."""
    reserve_many([hold(chain, key, 10 * CENT) for key in "abcde"])
    settle("a", bill(3 * CENT))
    settle("b", bill(11 * CENT))  # above its hold
    expire("c", "d")
    charge_expired()
    settle("c", bill(CENT))
    limits_set(chain, None, None, 43 * CENT)
    reserve(hold(chain, "f", 7 * CENT))
    settle("f", bill(30 * CENT))  # owed by the job


def checked() -> tuple[int, str]:
    out = io.StringIO()
    try:
        call_command("ledger_check", stdout=out, stderr=out)
    except SystemExit as end:
        return int(str(end.code)), out.getvalue()
    return 0, out.getvalue()


def test_ledger_check_finds_nothing_where_all_is_right(chain: Chain) -> None:
    lived(chain)
    assert Budget.objects.get(id=chain.job_budget).debt_micros > 0
    assert checked() == (0, "The book adds up: 3 budgets and 6 reservations against 20 ledger entries.\n")


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ("UPDATE budgets_budget SET spent = spent - 1 WHERE scope = 'job'", "spent is"),
        ("UPDATE budgets_budget SET reserved = reserved - 1 WHERE scope = 'agent'", "reserved is"),
        ("UPDATE budgets_budget SET debt = debt + 1 WHERE scope = 'organization'", "debt is 1, the ledger says 0"),
        ("UPDATE budgets_reservation SET actual = 5 WHERE key = 'a'", "reservation a: spent is 5"),
        ("UPDATE budgets_reservation SET amount = 5 WHERE key = 'e'", "reservation e: reserved is 5"),
        ("DELETE FROM budgets_reservation WHERE key = 'e'", "None"),
        ("DELETE FROM budgets_ledgerentry WHERE kind = 'refund'", "reservation c: spent is 10000"),
        ("DELETE FROM budgets_budget WHERE scope = 'agent'", "spent is None"),
    ],
)
def test_ledger_check_names_what_differs(chain: Chain, damage: str, found: str) -> None:
    lived(chain)
    with as_owner(), connection.cursor() as cursor:
        for table in ("budgets_reservation", "budgets_ledgerentry"):
            cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        cursor.execute(damage)
        for table in ("budgets_reservation", "budgets_ledgerentry"):
            cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")
    code, said = checked()
    assert code == 1 and found in said
    assert all(one.stored_micros != one.computed_micros for one in differences())


def test_ledger_check_reads_in_two_queries(chain: Chain, django_assert_num_queries: Any) -> None:
    lived(chain)
    with django_assert_num_queries(2):
        differences()
