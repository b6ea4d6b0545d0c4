"""Filters of deployments, for the page and for REST."""

from __future__ import annotations

from typing import Any

from django.db.models import Q, QuerySet
from django_filters import rest_framework as filters

from evaluation.serving.models import Deployment, DeploymentState, DeploymentStrategy
from experiences.lessons.filters import OfAgent


class DeploymentFilters(OfAgent):
    state = filters.ChoiceFilter(choices=DeploymentState.choices)
    strategy = filters.ChoiceFilter(choices=DeploymentStrategy.choices)
    release = filters.UUIDFilter(field_name="release_id")
    search = filters.CharFilter(method="searched", help_text="Text in the note, the reason, or the agent's name.")

    class Meta:
        model = Deployment
        fields: list[str] = []

    def searched(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        return rows.filter(Q(note__icontains=value) | Q(reason__icontains=value) | Q(agent__name__icontains=value))
