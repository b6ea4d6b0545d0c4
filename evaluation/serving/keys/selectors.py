"""Reads of programs' keys, and of what those that call models spent."""

from __future__ import annotations

import uuid
from datetime import date

from django.db.models import OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce

from agentcore_site.lib.errors import Missing
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import ApiKey
from budgets.ledger.accounts import month_of
from evaluation.serving.models import KeySpending

CALLS = "gateway:call"


def key_spent_micros(key_id: uuid.UUID) -> int:
    """Spending of a key this month."""
    found = KeySpending.objects.filter(key_id=key_id, month=month_of()).values_list("spent_micros", flat=True).first()
    return found or 0


def keys_visible(actor: Actor, month: date | None = None) -> QuerySet[ApiKey]:
    """One's own keys, and all of an organisation whose keys one manages.

    Each with ``spent_micros`` and ``calls`` of models of a month; of this one.
    """
    actor = Actor.of(actor)
    managed = [organization_id for organization_id in actor.organization_ids if actor.may("keys.edit", organization_id)]
    mine = Q(user=actor.user) | Q(organization__in=managed)
    of_month = KeySpending.objects.filter(key_id=OuterRef("pk"), month=month or month_of())
    found: QuerySet[ApiKey] = ApiKey.objects.visible_to(actor).filter(mine)
    return found.select_related("user").annotate(
        spent_micros=Coalesce(Subquery(of_month.values("spent_micros")), Value(0)),
        calls=Coalesce(Subquery(of_month.values("calls")), Value(0)),
    )


def calling_keys_visible(actor: Actor, month: date | None = None) -> QuerySet[ApiKey]:
    """The visible keys that may call models."""
    return keys_visible(actor, month).filter(scopes__contains=[CALLS])


def key_get(actor: Actor, key_id: uuid.UUID) -> ApiKey:
    """Raises:
    Missing: there is no such key for the actor."""
    row = keys_visible(actor).filter(pk=key_id).first()
    if row is None:
        raise Missing("There is no such key.")
    return row


def months_of(keys: QuerySet[ApiKey]) -> list[date]:
    """The months in which any of the keys spent, and this one; the newest first, at most a year."""
    spent = KeySpending.objects.filter(key_id__in=keys.order_by().values("pk")).values_list("month", flat=True)
    return sorted({*spent.distinct(), month_of()}, reverse=True)[:12]
