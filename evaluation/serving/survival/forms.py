"""The form of a measurement on another model. The service checks; the form keeps what was typed."""

from __future__ import annotations

from typing import Any

from django import forms

from agentcore_site.console.forms import ServiceForm
from agentcore_site.lib.errors import Conflict, Insufficient, Invalid, Missing
from agentcore_site.tenancy.actors import Actor
from evaluation.serving.models import Release
from evaluation.serving.survival.services import (
    DEFAULT_BUDGET_USD,
    DEFAULT_PAIRS,
    MOST_BUDGET_USD,
    MOST_PAIRS,
    SurvivalCosts,
    survival_plan,
)
from experiences.agents.selectors import endpoint_get, endpoints_visible
from experiences.models.agent_lookup import OFFERED


class SurvivalForm(ServiceForm):
    """The other model, the limit, and the number of pairs."""

    refusals = (Invalid, Conflict, Insufficient, Missing)
    endpoint = forms.ChoiceField(help_text="Of the other model.")
    model = forms.CharField(max_length=120, required=False, help_text="Empty: the endpoint's own.")
    max_budget_usd = forms.FloatField(
        min_value=0.0001,
        max_value=MOST_BUDGET_USD,
        initial=DEFAULT_BUDGET_USD,
        label="Maximum cost, in dollars",
        help_text="When the limit is reached, the pairs that are done are reported.",
    )
    pairs = forms.IntegerField(
        min_value=1,
        max_value=MOST_PAIRS,
        initial=DEFAULT_PAIRS,
        label="Pairs of rollouts",
        help_text="More pairs give shorter intervals.",
    )

    def __init__(self, actor: Actor, release: Release, data: Any = None, **more: Any) -> None:
        super().__init__(data, **more)
        self.actor, self.release = actor, release
        rows = endpoints_visible(actor).filter(organization_id=release.organization_id).order_by("name")
        self.fields["endpoint"].choices = [  # type: ignore[attr-defined]
            (str(row.pk), f"{row.name}: {row.model}" if row.model else row.name) for row in rows[:OFFERED]
        ]

    def values(self) -> dict[str, Any]:
        found = self.cleaned_data
        return {**found, "endpoint": endpoint_get(self.actor, found["endpoint"])}

    def costs(self) -> SurvivalCosts | None:
        """The estimate for the values of the form; None where a value is wrong."""
        if not self.is_valid():
            return None
        values = {name: value for name, value in self.values().items() if name != "max_budget_usd"}
        try:
            return survival_plan(self.actor, self.release, **values).costs
        except self.refusals as error:
            self.refuse(error)
            return None
