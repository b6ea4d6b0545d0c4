"""Forms of suites. The services check; a form keeps what was typed and carries the messages."""

from __future__ import annotations

from typing import Any

from django import forms

from agentcore_site.console.forms import OptionsField, ServiceForm
from agentcore_site.tenancy.actors import Actor
from evaluation.serving.models import Release
from evaluation.serving.suites.services import DEFAULT_BUDGET_USD, MOST_BUDGET_USD
from experiences.models.agent_lookup import agents_visible

EXAMPLE = """{
  "parts": [
    {"category": "arithmetic", "environment": "reasoning_gym", "n": 30, "options": {"families": ["chain_sum", "gcd"]}},
    {"category": "own", "dataset": "the id of a dataset"}
  ],
  "samples": 1, "threshold": 0.7
}"""
OFFERED = 100  # agents, and releases


class VersionForm(ServiceForm):
    """The spec of a suite, as JSON."""

    spec = OptionsField(
        label="Content",
        help_text="JSON: parts of environments, datasets or probes, and run settings.",
        widget=forms.Textarea(attrs={"rows": 14, "spellcheck": "false", "class": "code", "placeholder": EXAMPLE}),
    )


class SuiteForm(VersionForm):
    """A new suite."""

    name = forms.SlugField(max_length=60, help_text="Name in lists and gates.")
    description = forms.CharField(max_length=500, required=False)
    field_order = ("name", "description", "spec")


class RunForm(ServiceForm):
    """The form of a run: its object, its judge and its budget."""

    subject = forms.ChoiceField(label="Measure")
    judge_model = forms.CharField(
        max_length=120,
        required=False,
        label="Judge",
        help_text="Model at the agent's endpoint for answers that rules can't judge. Empty: not judged.",
    )
    max_budget_usd = forms.FloatField(
        min_value=0.01,
        max_value=MOST_BUDGET_USD,
        initial=DEFAULT_BUDGET_USD,
        label="Maximum cost, in dollars",
    )

    def __init__(self, actor: Actor, data: Any = None, **more: Any) -> None:
        super().__init__(data, **more)
        self.actor = actor
        agents = agents_visible(actor).exclude(runtime="action").order_by("name")[:OFFERED]
        releases = Release.objects.visible_to(actor).filter(agent__archived_at=None).select_related("agent")
        self.fields["subject"].choices = [  # type: ignore[attr-defined]
            (
                "Agents with current settings",
                [(f"agent:{agent.pk}", agent.name) for agent in agents],
            ),
            (
                "Releases",
                [(f"release:{one.pk}", str(one)) for one in releases.defer("bundle").order_by("-created_at")[:OFFERED]],
            ),
        ]

    def values(self) -> dict[str, Any]:
        kind, _, key = self.cleaned_data["subject"].partition(":")
        rows = agents_visible(self.actor) if kind == "agent" else Release.objects.visible_to(self.actor)
        found = rows.select_related("organization").get(pk=key) if kind == "agent" else rows.get(pk=key)
        rest = {name: value for name, value in self.cleaned_data.items() if name != "subject"}
        return {kind: found, **rest}
