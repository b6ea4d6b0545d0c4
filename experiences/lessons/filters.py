"""The filter by agent of every list over agents."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django_filters import rest_framework as filters

from agentcore_site.tenancy.actors import Actor
from experiences.models.agent_lookup import agent_get


class OfAgent(filters.FilterSet):
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
