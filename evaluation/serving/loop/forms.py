"""The form of a learning loop."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms

from agentcore_site.console.forms import OptionsField
from evaluation.serving.deployments.forms import CANARY_FIELDS, CanaryForm
from evaluation.serving.deployments.rules import DeploymentRule
from evaluation.serving.deployments.services import STRATEGIES
from evaluation.serving.loop.services import settings_of
from evaluation.serving.models import LearningLoop, RowReview
from training.config.presets import PRESETS


class LoopForm(CanaryForm):
    marker: ClassVar[str] = "monthly_usd"

    on = forms.BooleanField(
        required=False,
        label="Automatic turns",
        help_text="Turns start automatically, with the permissions of the person who enables this.",
    )
    after_traces = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=10_000_000,
        label="Start after so many new traces",
        help_text="Empty: no turn by traces.",
    )
    judged_only = forms.BooleanField(required=False, label="Only traces with feedback count")
    daily = forms.BooleanField(required=False, label="Start every day at 02:00 UTC")
    on_drift = forms.BooleanField(required=False, label="Start when production gets worse")
    monthly_usd = forms.FloatField(
        min_value=0,
        max_value=1_000_000,
        label="Monthly budget in dollars",
        help_text="For the jobs, proofs and suite runs of all turns.",
    )
    least_rows = forms.IntegerField(min_value=3, max_value=10_000, label="Minimum rows to learn from")
    review = forms.ChoiceField(choices=RowReview.choices, label="Review")
    preset = forms.ChoiceField(choices=[(name, one.title) for name, one in PRESETS.items()], label="Preset of the jobs")
    config = OptionsField(required=False, label="Settings of the jobs", help_text="JSON: changes from the preset.")
    environment_options = OptionsField(
        required=False, label="Options of the jobs", help_text="JSON: options of the rollouts, e.g. tools."
    )
    strategy = forms.ChoiceField(choices=[(one.value, one.label) for one in STRATEGIES], label="Deployment strategy")
    field_order = (
        "on", "after_traces", "judged_only", "daily", "on_drift", "monthly_usd", "least_rows", "review", "preset",
        "config", "environment_options", "strategy", *CANARY_FIELDS,
    )  # fmt: skip

    @classmethod
    def of(cls, loop: LearningLoop, data: Any = None) -> LoopForm:
        rule = DeploymentRule.from_json(loop.rule) if loop.rule else DeploymentRule()
        return cls(data, initial=settings_of(loop) | cls.initial_of(rule))

    def clean(self) -> dict[str, Any]:
        found = super().clean()
        if not self.errors and (rule := self.rule_of(found)) is not None:
            found["rule"] = rule.as_json()
        return found
