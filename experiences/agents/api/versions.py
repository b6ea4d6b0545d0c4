"""Versions of what stands under an agent's name: its row is held while one of them is compared and changed."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet

from experiences.models import Agent
from experiences.models.agent_lookup import agent_get


class AgentVersions:
    actor: Any
    lookup_field = "agent"

    def version_row(self, agent: str) -> QuerySet[Any]:
        return Agent._base_manager.filter(pk=agent_get(self.actor, agent).pk)
