"""Filters of suites and their runs, for pages and for REST."""

from __future__ import annotations

from typing import Any

from django.db.models import Q, QuerySet
from django_filters import rest_framework as filters

from agentcore_site.jobs.models import Status
from agentcore_site.rest.filters import OnPage
from evaluation.serving.models import Suite, SuiteKind, SuiteResult, SuiteRun
from experiences.lessons.filters import OfAgent

OUTCOMES = (("failed", "failed"), ("unjudged", "not judged"), ("passed", "passed"))
FORMER_OUTCOME = ("untold", "the former name of unjudged")


class SuiteFilters(OnPage):
    kind = filters.ChoiceFilter(choices=SuiteKind.choices)
    search = filters.CharFilter(method="searched", help_text="Text in name or description.")

    class Meta:
        model = Suite
        fields: list[str] = []

    def searched(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        return rows.filter(Q(name__icontains=value) | Q(description__icontains=value))


class SuiteRunFilters(OfAgent):
    suite = filters.CharFilter(field_name="version__suite__name", help_text="The suite's name.")
    release = filters.UUIDFilter(field_name="release_id")
    status = filters.ChoiceFilter(field_name="job__status", choices=Status.choices)
    search = filters.CharFilter(
        field_name="agent__name", lookup_expr="icontains", help_text="Text in the agent's name."
    )

    class Meta:
        model = SuiteRun
        fields: list[str] = []


class SuiteResultFilters(OnPage):
    category = filters.CharFilter(field_name="category")
    outcome = filters.ChoiceFilter(choices=(*OUTCOMES, FORMER_OUTCOME), method="of_outcome")
    search = filters.CharFilter(method="searched", help_text="Text in query or answer.")

    class Meta:
        model = SuiteResult
        fields: list[str] = []

    def of_outcome(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        """``failed``: a sample failed; ``passed``: none did, and one was judged; ``unjudged``: none was judged."""
        failed, judged = Q(successes__contains=[False]), Q(successes__overlap=[True, False])
        passed = judged & ~failed
        return rows.filter({"failed": failed, "unjudged": ~judged, "untold": ~judged, "passed": passed}[value])

    def searched(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        return rows.filter(Q(query__icontains=value) | Q(answer__icontains=value))
