"""A form's field that chooses an agent."""

from __future__ import annotations

from typing import Any

from django import forms
from django.db.models import QuerySet

from experiences.models import Agent
from experiences.models.agent_lookup import agents_offered


class AgentChoiceField(forms.ModelChoiceField):  # type: ignore[type-arg]  # Django itself has no [Agent]
    """Takes every agent that it is offered, and lists the first by name: see ``agents_offered``."""

    def __init__(self, **options: Any) -> None:
        super().__init__(Agent.objects.none(), **options)

    def offer(self, agents: QuerySet[Agent]) -> None:
        self.queryset = agents
        listed = [(agent.pk, agent.name) for agent in agents_offered(agents)]
        self.choices = [("", self.empty_label or ""), *listed]
