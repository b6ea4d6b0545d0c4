"""Short words for the tests of the ledger. Amounts are micro-dollars."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db.models.functions import Now

from budgets.ledger import Hold
from budgets.ledger.accounts import Chain
from budgets.meter_port import Bill
from budgets.models import Budget, Reservation
from budgets.pricing import Usage


def hold(chain: Chain, key: str, amount: int, **extra: Any) -> Hold:
    return Hold(key, chain, amount, purpose="training", model="small", **extra)


def bill(amount: int, **extra: Any) -> Bill:
    return Bill(amount, Usage(100, 20, cached_tokens=10), "provider", latency_ms=250, **extra)


def limits_set(chain: Chain, *limits: int | None) -> None:
    """The limits of the chain's rows, outermost first, without a person who sets them."""
    for one, limit in zip(chain.budgets, limits, strict=True):
        Budget.objects.filter(id=one).update(limit_micros=limit)


def balances(chain: Chain) -> list[tuple[int, int, int]]:
    """(spent, reserved, debt) of each budget of the chain, outermost first."""
    rows = Budget.objects.in_bulk(chain.budgets)
    return [(rows[one].spent_micros, rows[one].reserved_micros, rows[one].debt_micros) for one in chain.budgets]


def expire(*keys: str) -> None:
    """Lets the leases of these holds (of all) end a second ago. The trigger guards amounts and states, so it is off."""
    from django.db import connection

    from tests.support.owner import as_owner

    rows = Reservation.objects.filter(state="held")
    with as_owner(), connection.cursor() as cursor:
        cursor.execute("ALTER TABLE budgets_reservation DISABLE TRIGGER moves")
        (rows.filter(key__in=keys) if keys else rows).update(expires_at=Now() - timedelta(seconds=1))
        cursor.execute("ALTER TABLE budgets_reservation ENABLE TRIGGER moves")
