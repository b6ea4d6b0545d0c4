"""Filters of keys, for the page and for REST."""

from __future__ import annotations

from typing import Any, Final

from django.db.models import F, Q, QuerySet
from django.utils import timezone
from django_filters import rest_framework as filters

from agentcore_site.rest.filters import OnPage
from agentcore_site.tenancy.models import ApiKey

STATES: Final = (("alive", "active"), ("exhausted", "monthly limit reached"), ("ended", "revoked or expired"))
EXHAUSTED: Final = Q(spent_micros__gte=F("monthly_micros"))


class CallingKeyFilters(OnPage):
    state = filters.ChoiceFilter(
        method="of_state",
        choices=STATES,
        help_text="Ended: revoked or expired. Exhausted: active, with its monthly limit reached.",
    )
    month = filters.CharFilter(method="as_it_is", help_text="What was spent in this month (UTC), e.g. 2026-11.")
    search = filters.CharFilter(method="searched", help_text="Text in the name, its beginning, or its owner's name.")

    class Meta:
        model = ApiKey
        fields: list[str] = []

    def of_state(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        alive = Q(revoked_at=None, expires_at__gt=timezone.now())
        return rows.filter({"alive": alive, "exhausted": alive & EXHAUSTED, "ended": ~alive}[value]) if value else rows

    def as_it_is(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        return rows  # what was spent was read by it

    def searched(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        found = Q(name__icontains=value) | Q(prefix__startswith=value) | Q(user__username__icontains=value)
        return rows.filter(found)
