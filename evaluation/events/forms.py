"""The form of a publisher."""

from __future__ import annotations

from typing import Any

from django import forms

from agentcore_site.console.forms import ServiceForm
from experiences.agents.choice_field import AgentChoiceField


class EventCredentialForm(ServiceForm):
    marker = "name"
    name = forms.CharField(max_length=80, help_text="Name of the program.")
    agent = AgentChoiceField(
        required=False,
        empty_label="A service, for all agents",
        help_text="Agent of the publisher. A service rewards and trains: it may publish for all agents.",
    )

    def __init__(self, *args: Any, agents: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["agent"].offer(agents)  # type: ignore[attr-defined]
