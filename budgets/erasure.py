"""Erasure in budgets: error texts of services, and notes."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from agentcore_site.tenancy.erasure import ErasureFinding, erasure_handlers, holding, rewritten, staying
from budgets.models import BudgetAlert, BudgetLimit, BudgetSettings, LedgerEntry, ModelPrice, Reservation

STAYS = "The ledger can't be changed: every balance is counted from it."


@erasure_handlers.register("budget alerts")
def alerts(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    return rewritten(BudgetAlert.objects.filter(budget__organization_id=organization_id), words, texts=("error",))


@erasure_handlers.register("budget settings")
def settings(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    """The address is deleted as a whole: what is left of it without the words could be another person's address."""
    mine = BudgetSettings.objects.filter(organization_id=organization_id)
    found = holding(mine, words, texts=("webhook_url",))
    note = "The webhook of budget alerts is gone: give it another address."
    return ErasureFinding(found.count(), lambda: found.update(webhook_url=""), note)


@erasure_handlers.register("own prices")
def prices(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    mine = ModelPrice.objects.filter(organization_id=organization_id)
    return rewritten(mine, words, texts=("source",), names=("model",))


@erasure_handlers.register("ledger")
def ledger(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    mine = LedgerEntry.objects.filter(organization_id=organization_id)
    return staying(mine, words, texts=("error", "model"), note=STAYS)


@erasure_handlers.register("reservations")
def reservations(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    mine = Reservation.objects.filter(organization_id=organization_id)
    return staying(mine, words, texts=("model",), note=STAYS)


@erasure_handlers.register("limits that were set")
def limits(organization_id: uuid.UUID, words: Sequence[str]) -> ErasureFinding:
    mine = BudgetLimit.objects.filter(organization_id=organization_id)
    return staying(mine, words, texts=("actor", "note"), note=STAYS)
