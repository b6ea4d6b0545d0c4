"""The forms of webhooks and of notification settings."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django import forms

from agentcore_site.console.forms import RowForm
from agentcore_site.lib.errors import Conflict, Invalid
from agentcore_site.notices.catalogue import CHOICES
from agentcore_site.notices.models import EndpointFormat, NoticePreferences, WebhookEndpoint, Whose


class TypesField(forms.MultipleChoiceField):
    """Types of events, as boxes to tick."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(choices=CHOICES, required=False, widget=forms.CheckboxSelectMultiple, **kwargs)


class WebhookForm(RowForm):
    """A webhook. ``format`` is chosen when it is made."""

    marker = "name"
    refusals = (Invalid, Conflict)
    row_fields = ("name", "url", "types")

    name = forms.CharField(max_length=80, label="Name", help_text="Name shown in lists.")
    url = forms.CharField(
        max_length=500,
        label="Address",
        help_text="Events are posted to this address. A chat gives an address of its own for incoming webhooks.",
        widget=forms.TextInput(attrs={"placeholder": "https://", "autocomplete": "off", "spellcheck": "false"}),
    )
    format = forms.ChoiceField(choices=EndpointFormat.choices, label="Format", required=False)
    types = TypesField(label="Events", help_text="None selected: all events.")

    @classmethod
    def of(cls, row: WebhookEndpoint | None, data: Any = None, **extra: Any) -> WebhookForm:
        form = cls(data, initial=cls.initial_of(row), **extra)
        if row is not None:
            del form.fields["format"]
        return form

    @classmethod
    def initial_of(cls, row: WebhookEndpoint | None) -> dict[str, Any]:
        if row is None:
            return {"format": EndpointFormat.STANDARD}
        return super().initial_of(row)

    def values(self) -> dict[str, Any]:
        values = dict(self.cleaned_data)
        if "format" in values:
            values["format"] = values["format"] or EndpointFormat.STANDARD
        return values


class PreferencesForm(RowForm):
    """A person's notification settings. ``agents``: the actor's agents that can be chosen."""

    marker = "whose"
    refusals = (Invalid, Conflict)
    row_fields = ("whose", "bell", "mail", "mail_in_digest", "digest", "time_zone")

    whose = forms.ChoiceField(choices=Whose.choices, label="Jobs, budgets and releases")
    agents = forms.MultipleChoiceField(required=False, widget=forms.CheckboxSelectMultiple, label="Chosen agents")
    bell = TypesField()
    mail = TypesField()
    mail_in_digest = forms.BooleanField(required=False, label="Collect the mails above in the weekly digest")
    digest = forms.BooleanField(required=False, label="Send the weekly digest each Monday at 8:00")
    time_zone = forms.CharField(
        max_length=40,
        required=False,
        label="My time zone",
        help_text="For all times shown and for the digest, e.g. Europe/Berlin. Empty: UTC.",
        widget=forms.TextInput(attrs={"data-browser-zone": "", "autocomplete": "off", "spellcheck": "false"}),
    )

    def __init__(self, data: Any = None, *, agents: list[tuple[UUID, str]], **kwargs: Any) -> None:
        super().__init__(data, **kwargs)
        field = self.fields["agents"]
        assert isinstance(field, forms.MultipleChoiceField)
        field.choices = [(str(key), name) for key, name in agents]

    @classmethod
    def initial_of(cls, row: NoticePreferences) -> dict[str, Any]:
        chosen = {"agents": [str(agent) for agent in row.agents]}
        return super().initial_of(row) | chosen | ({"time_zone": ""} if row._state.adding else {})

    def values(self) -> dict[str, Any]:
        return self.cleaned_data | {"agents": [UUID(agent) for agent in self.cleaned_data["agents"]]}
