"""Filters of turns and of their rows, for REST."""

from __future__ import annotations

from typing import Any

from django.db.models import Q, QuerySet
from django_filters import rest_framework as filters

from evaluation.serving.models import LoopRow, LoopTrigger, LoopTurn, RowState, TurnState
from experiences.lessons.filters import OfAgent


class LoopTurnFilters(OfAgent):
    state = filters.ChoiceFilter(choices=TurnState.choices)
    began_by = filters.ChoiceFilter(field_name="trigger", choices=LoopTrigger.choices)

    class Meta:
        model = LoopTurn
        fields: list[str] = []


class LoopRowFilters(filters.FilterSet):
    state = filters.ChoiceFilter(choices=RowState.choices)
    search = filters.CharFilter(method="searched", help_text="Text in query or answer.")

    class Meta:
        model = LoopRow
        fields: list[str] = []

    def searched(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        return rows.filter(Q(query__icontains=value) | Q(expected__icontains=value))
