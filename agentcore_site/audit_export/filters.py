"""Filters of the audit log, for the page, for REST and for exports."""

from __future__ import annotations

from typing import Any, Final

from django.db.models import Q, QuerySet
from django_filters import rest_framework as filters

from agentcore_site.audit.action_texts import actions_called
from agentcore_site.audit.models import AuditEvent
from agentcore_site.rest.filters import Moment, OnPage

# The subject of an action: the beginning of the action's name, and its label.
FAMILIES: Final = {
    "run": "run",
    "job": "job",
    "budget": "budget",
    "evaluation": "evaluation",
    "deployment": "deployment",
    "agent": "agent",
    "experience": "experience",
    "playbook": "playbook",
    "dataset": "dataset",
    "checkpoint": "checkpoint",
    "api_key": "API key",
    "person": "person",
}


class AuditEventFilters(OnPage):
    about = filters.ChoiceFilter(
        method="of_family", choices=[(family, family) for family in FAMILIES], help_text="What the action is about."
    )
    action = filters.CharFilter(field_name="action", help_text="Exactly this action, such as run.started.")
    actor = filters.CharFilter(field_name="actor", help_text="Exactly this name.")
    since = Moment(field_name="at", lookup_expr="gte", help_text="From this moment on.")
    until = Moment(field_name="at", lookup_expr="lt", help_text="Before this moment.")
    search = filters.CharFilter(
        method="searched", help_text="Text in actor, action or object; or the id of an object or a request."
    )

    class Meta:
        model = AuditEvent
        fields: list[str] = []

    def of_family(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        return rows.filter(action__startswith=f"{value}.")

    def searched(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        holds = Q(actor__icontains=value) | Q(target__icontains=value) | Q(action__icontains=value)
        holds |= Q(action__in=actions_called(value))
        return rows.filter(holds | Q(target_id=value) | Q(request_id=value))
