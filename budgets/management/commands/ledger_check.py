"""``manage.py ledger_check``: works out every balance from the ledger and names each one that differs."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from budgets.ledger.reconciliation import differences
from budgets.models import Budget, LedgerEntry, Reservation


class Command(BaseCommand):
    help = "Recompute every balance and reservation from the ledger; exits with 1 if one differs."

    def handle(self, *args: Any, **options: Any) -> None:
        found = differences()
        for one in found:
            self.stdout.write(str(one))
        counts = (Budget.objects.count(), Reservation.objects.count(), LedgerEntry.objects.count())
        checked = "{:,} budgets and {:,} reservations against {:,} ledger entries".format(*counts)
        if found:
            self.stderr.write(f"{len(found)} differences in {checked}.")
            raise SystemExit(1)
        self.stdout.write(f"The book adds up: {checked}.")
