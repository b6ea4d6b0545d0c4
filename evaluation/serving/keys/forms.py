"""The form of a new key."""

from __future__ import annotations

from typing import Any

from django import forms

from agentcore_site.console.forms import ServiceForm
from agentcore_site.lib.errors import DomainError
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.roles import SCOPE_TITLES, SCOPES
from agentcore_site.tenancy.services import MAX_DAYS, MAX_PER_MINUTE
from budgets.forms import DollarsField


class KeyForm(ServiceForm):
    """``actor``: for whom it is, which says what it may be given."""

    marker = "name"
    refusals = (DomainError,)
    name = forms.CharField(
        max_length=80,
        help_text="Program that uses the key.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "placeholder": "CI"}),
    )
    scopes = forms.MultipleChoiceField(label="Scopes", widget=forms.CheckboxSelectMultiple)
    days = forms.IntegerField(
        min_value=1,
        max_value=MAX_DAYS,
        initial=90,
        label="Days",
        help_text=f"Days until the key expires: 1 to {MAX_DAYS}.",
    )
    addresses = forms.CharField(
        required=False,
        max_length=4_000,
        help_text="IP addresses and networks that may use the key, one per line: 192.0.2.7 or 10.0.0.0/8. Empty: all.",
        widget=forms.Textarea(attrs={"rows": 2, "spellcheck": "false", "class": "code"}),
    )
    per_minute = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=MAX_PER_MINUTE,
        label="Calls per minute",
        help_text="Gateway calls of agents and models. Empty: not limited.",
    )
    monthly_usd = DollarsField(
        required=False, label="Dollars per month", help_text="For gateway calls. Empty: limited by the budgets only."
    )

    def __init__(self, *args: Any, actor: Actor, organization: Organization, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        home = organization.pk
        useful = [one for one, actions in SCOPES.items() if any(actor.may(action, home) for action in actions)]
        self.fields["scopes"].choices = [(one, f"{SCOPE_TITLES[one]} ({one})") for one in useful]  # type: ignore[attr-defined]

    def values(self) -> dict[str, Any]:
        """The arguments of ``api_key_create``."""
        found = dict(self.cleaned_data)
        found["monthly_micros"] = found.pop("monthly_usd")
        found["addresses"] = found["addresses"].splitlines()
        return found
