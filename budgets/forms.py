"""Forms of the budgets' pages. Who may and what fits is the services' work; a form keeps what was typed."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from django import forms
from django.core.exceptions import ValidationError

from agentcore_site.console.forms import RowForm, ServiceForm
from agentcore_site.lib.errors import DomainError, Invalid
from agentcore_site.lib.money import MICROS, micros
from agentcore_site.lib.money_format import exact
from budgets.ledger.values import MOST_MICROS
from budgets.models import BudgetSettings, ModelPrice

# 1,000 and 1,000.50, but not 0,50: a comma that could be a decimal point must not multiply the amount by a hundred.
THOUSANDS: Final = re.compile(r"^\d{1,3}(,\d{3})+(\.\d*)?$")

AMOUNTS: Final = ("input", "cached_input", "output", "per_call")  # the fields of a price
NO_NUMBER: Final = "Give dollars as a number, e.g. 20 or 0.50."


class DollarsField(forms.DecimalField):
    """Dollars as a person types them ("$1,000.50"); cleaned to integer micro-dollars, None where it is empty."""

    widget = forms.TextInput

    def __init__(self, **kwargs: Any) -> None:
        attributes = {"inputmode": "decimal", "autocomplete": "off"}
        kwargs.setdefault("widget", forms.TextInput(attrs=attributes))
        super().__init__(decimal_places=6, error_messages={"invalid": NO_NUMBER}, **kwargs)

    def to_python(self, value: Any) -> Any:
        text = str(value or "").strip().removeprefix("$").strip()
        if "," in text:
            if not THOUSANDS.match(text):
                raise ValidationError("Write the decimals with a point, e.g. 0.50.")
            text = text.replace(",", "")
        return super().to_python(text)

    def clean(self, value: Any) -> Any:
        if "\x00" in str(value or ""):
            raise ValidationError(NO_NUMBER)
        amount = super().clean(value)
        if amount is None:
            return None
        if amount < 0:
            raise ValidationError("It can't be negative.")
        if amount > Decimal(MOST_MICROS) / MICROS:
            raise ValidationError(f"At most {exact(MOST_MICROS)}.")
        return micros(amount)


class NoteForm(ServiceForm):
    """A limit and why."""

    marker = "limit"
    refusals = (DomainError,)
    limit = DollarsField(required=False, label="Limit in dollars", help_text="Empty: not limited.")
    note = forms.CharField(
        required=False,
        max_length=200,
        help_text="Reason, kept in the history.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )


class LimitForm(NoteForm):
    """Another limit in the place of the one that the page showed."""

    shown = DollarsField(required=False, widget=forms.HiddenInput)


class NewLimitForm(NoteForm):
    """The first limit of the organisation or of one of its agents."""

    owner = forms.ChoiceField(required=False, label="Scope", help_text="Per month, until it is changed.")
    field_order = ["owner", "limit", "note"]

    def __init__(self, *args: Any, owners: list[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["owner"].choices = owners  # type: ignore[attr-defined]

    def values(self) -> dict[str, Any]:
        """The arguments of ``services.budget_set_limit``."""
        given = self.cleaned_data
        agent_id = UUID(given["owner"]) if given["owner"] else None
        return {"agent_id": agent_id, "limit_micros": given["limit"], "note": given["note"]}


class PriceForm(ServiceForm):
    """An organisation's own price of a model."""

    marker = "model"
    refusals = (DomainError,)
    model = forms.CharField(max_length=200, help_text="Name in the provider's answers, e.g. gpt-4o-mini.")
    free = forms.BooleanField(
        required=False, label="This model is free", help_text="Its calls are counted and cost nothing."
    )
    input = DollarsField(required=False, label="Prompt", help_text="Dollars per million tokens.")
    cached_input = DollarsField(
        required=False, label="Cached prompt", help_text="Dollars per million tokens; empty: as the prompt."
    )
    output = DollarsField(required=False, label="Answer", help_text="Dollars per million tokens, reasoning included.")
    per_call = DollarsField(required=False, label="Per call", help_text="Additional dollars per call, if any.")
    valid_from = forms.DateField(
        required=False,
        label="From",
        widget=forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d"),
        help_text="Empty: from today on.",
    )
    source = forms.CharField(required=False, max_length=200, help_text="Source of the price.")

    @classmethod
    def of(cls, price: ModelPrice | None, model: str) -> PriceForm:
        if price is None:
            return cls(initial={"model": model})
        amounts = {name: typed(getattr(price, f"{name}_micros")) for name in AMOUNTS}
        return cls(initial={"model": price.model, "free": price.free, **amounts})

    def clean(self) -> dict[str, Any]:
        found = super().clean()
        if not found.get("free"):
            for name in ("input", "output"):
                if name not in self.errors and found.get(name) is None:
                    self.add_error(name, "Give a price, or say that the model is free.")
        return found

    def values(self) -> dict[str, Any]:
        """The arguments of ``services.price_set``."""
        found = {f"{name}_micros" if name in AMOUNTS else name: value for name, value in self.cleaned_data.items()}
        if found["free"]:
            return found | {"input_micros": 0, "output_micros": 0, "cached_input_micros": None, "per_call_micros": 0}
        return found | {"per_call_micros": found["per_call_micros"] or 0}


class SettingsForm(RowForm):
    marker = "webhook_url"
    refusals = (DomainError,)
    row_fields = ("email_admins", "webhook_url")
    email_admins = forms.BooleanField(required=False, label="E-mail the admins")
    webhook_url = forms.CharField(
        required=False,
        max_length=500,
        label="Webhook",
        help_text="Receives each alert as a signed POST of JSON. Empty: none.",
        widget=forms.TextInput(attrs={"placeholder": "https://", "autocomplete": "off", "spellcheck": "false"}),
    )
    most_per_minute = DollarsField(
        required=False,
        label="Dollars a minute",
        help_text="Maximum cost of all calls per minute. Further calls wait. Empty: not limited.",
    )

    @classmethod
    def initial_of(cls, row: BudgetSettings) -> dict[str, Any]:
        return super().initial_of(row) | {"most_per_minute": typed(row.most_per_minute_micros)}

    def values(self) -> dict[str, Any]:
        """The arguments of ``services.budget_settings_set``."""
        found = dict(self.cleaned_data)
        found["most_per_minute_micros"] = found.pop("most_per_minute")
        return found


class RangeForm(forms.Form):
    """``since`` and ``until`` of a breakdown, both included (UTC)."""

    since = forms.DateField(required=False, widget=forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d"))
    until = forms.DateField(required=False, widget=forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d"))

    def clean(self) -> dict[str, Any]:
        found = super().clean() or {}
        try:
            days_check(found.get("since"), found.get("until"))
        except Invalid as error:
            raise ValidationError(error.message) from error
        return found


def days_check(since: Any, until: Any) -> None:
    """Raises:
    Invalid: the days are out of the calendar that is kept, or the first is after the last."""
    for name, day in (("since", since), ("until", until)):
        if day is not None and not 2000 <= day.year < 2200:
            raise Invalid("Days are between 2000 and 2199.", fields={name: "Between 2000 and 2199."})
    if since is not None and until is not None and since > until:
        raise Invalid("The first day is after the last.", fields={"since": "It is after the last day."})


def typed(amount_micros: int | None) -> str:
    """Micro-dollars as a person would type them: 20.00."""
    return "" if amount_micros is None else exact(amount_micros).removeprefix("$").replace(",", "")


def month_read(text: str) -> date:
    """The first day of a month that is written like 2026-11. Raises Invalid."""
    try:
        return date.fromisoformat(f"{text}-01")
    except ValueError as error:
        message = f"month is written like 2026-11; got {text[:20]!r}."
        raise Invalid(message, fields={"month": message}) from error
