"""Versions of what is under an agent's name: its row is held while one of them is compared and changed."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet

from agentcore_site.rest.views import ScopedViewSet
from experiences.models import Agent
from experiences.models.agent_lookup import agent_get


# No docstring: it would be public, as what is said of operations that say nothing of their own.
class AgentVersions(ScopedViewSet):
    lookup_field = "agent"

    def version_row(self, **place: Any) -> QuerySet[Any]:
        return Agent._base_manager.filter(pk=agent_get(self.actor, place[self.lookup_field]).pk)
