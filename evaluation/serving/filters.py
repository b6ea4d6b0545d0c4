"""Filters of releases, for the page and for REST."""

from __future__ import annotations

from typing import Any

from django.db.models import Q, QuerySet
from django_filters import rest_framework as filters

from evaluation.serving.models import Release, ReleaseSource
from experiences.lessons.filters import OfAgent


class ReleaseFilters(OfAgent):
    source = filters.ChoiceFilter(choices=ReleaseSource.choices)
    search = filters.CharFilter(method="searched", help_text="Text in the note, or the beginning of the digest.")

    class Meta:
        model = Release
        fields: list[str] = []

    def searched(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        return rows.filter(Q(note__icontains=value) | Q(digest__startswith=value.lower()))
