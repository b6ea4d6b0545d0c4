"""Forms of deployments and of an agent's serving settings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from django import forms
from django.core.exceptions import ValidationError

from agentcore_site.console.forms import ServiceForm
from agentcore_site.lib.money import dollars, micros
from evaluation.serving.deployments.edits import LIMITS, MOST, MOST_A_MONTH, MOST_USD
from evaluation.serving.deployments.rules import HOUR, MARGIN, DeploymentRule, WhenOver
from evaluation.serving.deployments.services import STRATEGIES
from evaluation.serving.gate.verdict import GateRule
from evaluation.serving.models import AgentServing, DeploymentStrategy

CANARY_FIELDS: Final = (
    "shares", "minutes", "sessions", "feedback_minutes", "margin", "patience_hours", "when_over",
)  # fmt: skip


class SharesField(forms.CharField):
    """Shares of the sessions, in per cent, rising."""

    def clean(self, value: Any) -> list[float]:
        text = super().clean(value) or ""
        try:
            found = [float(one.strip(" %")) / 100 for one in text.split(",") if one.strip()]
        except ValueError:
            raise ValidationError("Give percentages with commas between them, e.g. 10, 25, 50.") from None
        if not all(map(math.isfinite, found)):
            raise ValidationError("Give percentages with commas between them, e.g. 10, 25, 50.")
        return found


class CanaryForm(ServiceForm):
    """The rule of a canary."""

    shares = SharesField(
        initial="10, 25, 50",
        required=False,
        help_text="Canary: the percentage of sessions in each stage; 100 % follows. Shadow: the first value is the"
        " percentage that is copied.",
    )
    minutes = forms.FloatField(initial=10, min_value=0, label="Minimum minutes of a stage")
    sessions = forms.IntegerField(initial=50, min_value=1, label="Minimum sessions of the new release in a stage")
    feedback_minutes = forms.FloatField(
        initial=10,
        min_value=0,
        label="Minutes for feedback",
        help_text="After these minutes a session counts as complete. A session with feedback counts at once.",
    )
    margin = forms.FloatField(
        initial=100 * MARGIN,
        required=False,
        min_value=0.1,
        max_value=99,
        label="Largest loss allowed to continue, in points",
        help_text="In failures, and in scores of answers. Empty: by minutes and sessions alone.",
    )
    patience_hours = forms.FloatField(initial=24, required=False, min_value=0, label="Maximum hours of a stage")
    when_over = forms.ChoiceField(
        choices=[(WhenOver.ASK, "Ask a person"), (WhenOver.PROMOTE, "Continue automatically")],
        required=False,
        label="After the maximum hours",
    )

    @classmethod
    def initial_of(cls, rule: DeploymentRule) -> dict[str, Any]:
        stage = rule.stages[0]
        return {
            "shares": ", ".join(f"{100 * one.share:g}" for one in rule.stages),
            "minutes": stage.minutes,
            "sessions": stage.sessions,
            "feedback_minutes": rule.feedback_minutes,
            "margin": None if rule.margin is None else round(100 * rule.margin, 6),
            "patience_hours": rule.patience_minutes / HOUR,
            "when_over": rule.when_over,
        }

    def rule_of(self, found: dict[str, Any], **others: Any) -> DeploymentRule | None:
        """The rule of the cleaned values, which are removed from ``found``; None, with a form error, if they are
        invalid."""
        shares, minutes, sessions, feedback = (found.pop(name) for name in CANARY_FIELDS[:4])
        margin, hours, when_over = (found.pop(name) for name in CANARY_FIELDS[4:])
        try:
            return DeploymentRule.canary(
                shares or [stage.share for stage in DeploymentRule().stages],
                minutes,
                sessions,
                feedback_minutes=feedback,
                margin=None if margin is None else margin / 100,
                patience_minutes=DeploymentRule().patience_minutes if hours is None else hours * HOUR,
                when_over=when_over or WhenOver.ASK,
                **others,
            )
        except ValueError as error:
            self.add_error("shares", str(error))
            return None


# The strategies that use a field. The page hides the field when another strategy is chosen.
USED_BY: Final = {
    **dict.fromkeys(("minutes", "sessions", "feedback_minutes", "margin", "patience_hours", "when_over"), "canary"),
    "shares": "canary shadow",
    "watch_minutes": "blue_green",
    "budget_usd": "shadow",
}


class DeployForm(CanaryForm):
    marker: ClassVar[str] = "strategy"

    strategy = forms.ChoiceField(choices=DeploymentStrategy.choices, initial=DeploymentStrategy.CANARY)
    watch_minutes = forms.FloatField(
        initial=30, min_value=0, label="Minutes of monitoring", help_text="Of blue-green, after its switch."
    )
    budget_usd = forms.FloatField(
        initial=5,
        min_value=0,
        label="Budget of a shadow, in dollars",
        help_text="The shadow ends at this cost of its answers.",
    )
    note = forms.CharField(max_length=300, required=False)
    override = forms.CharField(
        max_length=300,
        required=False,
        label="Reason to override the gate",
        help_text="Admins only; recorded in the audit log.",
    )
    field_order = ("strategy", *CANARY_FIELDS)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, strategies in USED_BY.items():
            self.fields[name].widget.attrs["data-for"] = strategies

    def clean(self) -> dict[str, Any]:
        found = super().clean()
        if not self.errors:
            others = {"watch_minutes": found.pop("watch_minutes"), "budget_micros": micros(found.pop("budget_usd"))}
            found["rule"] = self.rule_of(found, **others)
        return found

    def values(self) -> dict[str, Any]:
        return {name: self.cleaned_data[name] for name in ("strategy", "rule", "note", "override")}


class SuitesField(forms.CharField):
    """The required suites, each with its minimum score in per cent: one per line."""

    widget = forms.Textarea(attrs={"rows": 3, "placeholder": "coding 80"})

    def clean(self, value: Any) -> dict[str, float]:
        found = {}
        for line in (super().clean(value) or "").splitlines():
            name, _, least = line.strip().rpartition(" ")
            if not line.strip():
                continue
            try:
                found[name.strip()] = float(least.strip("%")) / 100
            except ValueError:
                message = f"Give a suite and its minimum score, e.g. coding 80; got {line[:60]!r}."
                raise ValidationError(message) from None
        return found

    def prepare_value(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return "\n".join(f"{name} {least * 100:g}" for name, least in value.items())
        return value


class EditsForm(ServiceForm):
    marker: ClassVar[str] = "most"

    most = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=MOST,
        label="Texts that may be released automatically",
        help_text="Lessons and items of its playbook; never its model, tools or prompt. Empty: a person deploys each.",
    )
    strategy = forms.ChoiceField(
        choices=[(one.value, one.label) for one in STRATEGIES], required=False, label="Strategy"
    )
    a_month = forms.IntegerField(
        required=False, min_value=0, max_value=MOST_A_MONTH, label="Maximum small edits per month"
    )
    monthly_usd = forms.FloatField(
        required=False, min_value=0, max_value=MOST_USD, label="Monthly budget for suites of the gate, in dollars"
    )

    def values(self) -> dict[str, Any]:
        limits = {name: self.cleaned_data[name] for name in LIMITS if self.cleaned_data[name] not in (None, "")}
        return {"most": self.cleaned_data["most"], **limits}


class ServingForm(ServiceForm):
    marker: ClassVar[str] = "while_away_usd"

    fallbacks = forms.MultipleChoiceField(
        required=False,
        help_text="Used in this order if the agent's own endpoint does not answer.",
        widget=forms.CheckboxSelectMultiple,
    )
    while_away_usd = forms.FloatField(
        min_value=0,
        max_value=1_000,
        label="Dollars per process while the database is unavailable",
        help_text="0: nothing is answered then. Else the last known release answers, and the ledger books it later.",
    )
    webhook_url = forms.CharField(
        required=False,
        max_length=500,
        label="Webhook for changes of the release in production",
        help_text="For a gateway of your own beside the built-in one. Empty: none.",
        widget=forms.TextInput(attrs={"inputmode": "url"}),
    )
    suites = SuitesField(
        required=False, label="Required suites", help_text="One per line, with its minimum score in per cent."
    )
    margin = forms.FloatField(
        min_value=0,
        max_value=100,
        label="Maximum loss against the current release, in points",
        help_text="For each of these suites.",
    )
    gain = forms.FloatField(
        required=False,
        min_value=0,
        max_value=100,
        label="Minimum gain over the current release, in points (empty: none)",
    )
    safety = forms.BooleanField(required=False, label="Safety probes required")
    most_unsafe = forms.FloatField(min_value=0, max_value=100, label="Maximum failed probes per category, in per cent")
    most_cost = forms.FloatField(required=False, min_value=0, label="Maximum dollars per query")
    most_latency = forms.FloatField(required=False, min_value=0, label="Maximum seconds per query")
    approval = forms.BooleanField(required=False, label="Approval of a second person required")

    def __init__(self, *args: Any, endpoints: list[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["fallbacks"].choices = endpoints  # type: ignore[attr-defined]

    @classmethod
    def initial_of(cls, serving: AgentServing, rule: GateRule) -> dict[str, Any]:
        same = {name: getattr(rule, name) for name in ("suites", "safety", "most_cost", "most_latency", "approval")}
        shares = {name: 100 * getattr(rule, name) for name in ("margin", "most_unsafe")}
        return {
            "fallbacks": [str(fallback) for fallback in serving.fallbacks],
            "webhook_url": serving.webhook_url,
            "while_away_usd": dollars(serving.while_away_micros),
            "gain": None if rule.gain is None else 100 * rule.gain,
            **same,
            **shares,
        }

    def clean(self) -> dict[str, Any]:
        found = super().clean()
        if self.errors:
            return found
        try:
            found["gate"] = GateRule(
                suites=found["suites"],
                safety=found["safety"],
                most_unsafe=found["most_unsafe"] / 100,
                margin=found["margin"] / 100,
                gain=None if found["gain"] is None else found["gain"] / 100,
                most_cost=found["most_cost"],
                most_latency=found["most_latency"],
                approval=found["approval"],
            )
        except ValueError as error:
            self.add_error("suites", str(error))
        return found

    def values(self) -> dict[str, Any]:
        return {name: self.cleaned_data[name] for name in ("fallbacks", "while_away_usd", "gate", "webhook_url")}
