"""Filters that a list has at each of its interfaces: of all lists over agents, and of lessons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet
from django_filters import rest_framework as filters

from agentcore_site.lib.errors import Missing
from agentcore_site.rest.filters import OnPage
from agentcore_site.tenancy.actors import Actor
from experiences.models import Experience, ExperienceStatus
from experiences.models.agent_lookup import agent_get


class OfAgent(OnPage):
    """``?agent=``. Jobs and agents are looked up among those that ``actor`` may see."""

    agent = filters.CharFilter(method="of_agent", help_text="The agent, by id or slug.")

    def __init__(self, *args: Any, actor: Actor | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._actor = actor

    @property
    def actor(self) -> Actor:
        from agentcore_site.tenancy.authentication import actor_of

        return self._actor or actor_of(self.request)

    def of_agent(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        return rows.filter(agent_id=agent_get(self.actor, value).id)

    @classmethod
    def on_page(cls, rows: QuerySet[Any], values: Mapping[str, str], **given: Any) -> QuerySet[Any]:
        """As each page filters; an agent that is not there has no rows."""
        try:
            return super().on_page(rows, values, **given)
        except Missing:
            return rows.none()


class ExperienceFilters(OfAgent):
    status = filters.ChoiceFilter(field_name="status", choices=ExperienceStatus.choices)
    domain = filters.CharFilter(field_name="domain")
    min_effect = filters.NumberFilter(
        field_name="effect", lookup_expr="gte", help_text="Measured, and at least so much."
    )
    search = filters.CharFilter(field_name="summary", lookup_expr="icontains", help_text="Text in the lesson.")

    class Meta:
        model = Experience
        fields: list[str] = []
