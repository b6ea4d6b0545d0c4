"""Filters of dead letters and publishers, for the pages and for REST."""

from __future__ import annotations

from typing import Any, Final

from django.db.models import Q, QuerySet
from django_filters import rest_framework as filters

from agentcore_site.jobs.models import Status
from agentcore_site.rest.filters import OnPage
from evaluation.events.models import DeadLetter, DeadReason, EventCredential, RequestMode, TrainingRequest

STATES: Final = (("open", "open"), ("taken", "taken"), ("dismissed", "dismissed"))
ALIVE: Final = (("alive", "alive"), ("revoked", "revoked"))


class DeadLetterFilters(OnPage):
    reason = filters.ChoiceFilter(choices=DeadReason.choices)
    state = filters.ChoiceFilter(method="of_state", choices=STATES)
    stream = filters.CharFilter(field_name="stream")
    search = filters.CharFilter(method="searched", help_text="Text in the detail or in the payload.")

    class Meta:
        model = DeadLetter
        fields: list[str] = []

    def of_state(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        return rows.filter(settled_at=None) if value == "open" else rows.filter(outcome=value)

    def searched(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        return rows.filter(Q(detail__icontains=value) | Q(payload__icontains=value))


class EventCredentialFilters(OnPage):
    state = filters.ChoiceFilter(method="of_state", choices=ALIVE)
    search = filters.CharFilter(method="searched", help_text="Text in the name, or in that of its agent.")

    class Meta:
        model = EventCredential
        fields: list[str] = []

    def of_state(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        return rows.filter(revoked_at__isnull=value == "alive")

    def searched(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        return rows.filter(Q(name__icontains=value) | Q(agent__name__icontains=value) | Q(user=value))


class TrainingRequestFilters(OnPage):
    mode = filters.ChoiceFilter(choices=RequestMode.choices)
    status = filters.ChoiceFilter(field_name="job__status", choices=Status.choices)
    search = filters.CharFilter(method="searched", help_text="Text in the model, or its id.")

    class Meta:
        model = TrainingRequest
        fields: list[str] = []

    def searched(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        found = Q(base_model__icontains=value) | Q(algorithm__icontains=value) | Q(training_job_id=value)
        return rows.filter(found)
