"""Form of the retention of archives."""

from __future__ import annotations

from typing import Any

from django import forms

from agentcore_site.console.forms import ServiceForm
from experiences.agents.choice_field import AgentChoiceField
from experiences.trajectories.archive.services import LONGEST


class ArchiveRuleForm(ServiceForm):
    agent = AgentChoiceField(required=False, empty_label="all agents")
    keep_days = forms.IntegerField(
        required=False,
        min_value=0,
        max_value=LONGEST,
        label="Days",
        help_text="After its month was archived. 0: forever. Empty: the default for all.",
    )

    def __init__(self, *args: Any, agents: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["agent"].offer(agents)  # type: ignore[attr-defined]
