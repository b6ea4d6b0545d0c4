"""Forms of the budgets' pages. Who may and what fits is the services' work; a form keeps what was typed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date, tzinfo
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
from budgets.models import BudgetSettings, ModelPrice, Scope
from budgets.presenters.price_list import KIND_NAMES
from budgets.usage_files.comparison import zone_of

# 1,000 and 1,000.50, but not 0,50: a comma that could be a decimal point must not multiply the amount by a hundred.
THOUSANDS: Final = re.compile(r"^\d{1,3}(,\d{3})+(\.\d*)?$")

AMOUNTS: Final = ("input", "cached_input", "output", "per_call")  # the fields of a price
TIER_NAMES: Final = {"prompt": "input_micros", "answer": "output_micros"} | {
    name: kind for kind, name in KIND_NAMES.items()
}
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
    """The first limit of the organisation, of its playground, or of one of its agents."""

    owner = forms.ChoiceField(required=False, label="Scope", help_text="Per month, until it is changed.")
    field_order = ["owner", "limit", "note"]

    def __init__(self, *args: Any, owners: list[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["owner"].choices = owners  # type: ignore[attr-defined]

    def values(self) -> dict[str, Any]:
        """The arguments of ``services.playground_set_limit`` or ``services.budget_set_limit``."""
        given = self.cleaned_data
        found = {"limit_micros": given["limit"], "note": given["note"]}
        if given["owner"] == Scope.PLAYGROUND:
            return found
        return found | {"agent_id": UUID(given["owner"]) if given["owner"] else None}


class TiersField(forms.CharField):
    """Prices of long prompts, a line each ("200000: prompt 6, answer 22.50, cached 0.60"); cleaned to the tiers of
    ``ModelPrice``."""

    widget = forms.Textarea(attrs={"rows": 3, "spellcheck": "false", "class": "code"})

    def clean(self, value: Any) -> list[dict[str, Any]]:
        lines = str(super().clean(value) or "").splitlines()
        return [self._tier(number, line) for number, line in enumerate(lines, start=1) if line.strip()]

    def _tier(self, number: int, line: str) -> dict[str, Any]:
        start, _, rest = line.partition(":")
        start = start.strip().replace(",", "")
        amounts: dict[str, int] = {}
        for part in rest.split(", "):
            name, _, amount = part.strip().rpartition(" ")
            kind = TIER_NAMES.get(name.strip().casefold())
            if kind is None or kind in amounts:
                names = ", ".join(TIER_NAMES)
                raise ValidationError(f"Line {number}: give each price once, by one of the names {names}.")
            try:
                amounts[kind] = DollarsField().clean(amount)
            except ValidationError as error:
                raise ValidationError(f"Line {number}: {' '.join(error.messages)}") from error
        if not (start.isascii() and start.isdigit() and len(start) <= 9) or not {"input_micros", "output_micros"} <= {
            *amounts
        }:
            raise ValidationError(f"Line {number} is not like 200000: prompt 6, answer 22.50, cached 0.60.")
        input_micros, output_micros = amounts.pop("input_micros"), amounts.pop("output_micros")
        return {
            "above_tokens": int(start),
            "input_micros": input_micros,
            "output_micros": output_micros,
            "rates": amounts,
        }

    @staticmethod
    def typed(tiers: Sequence[Mapping[str, Any]]) -> str:
        """Tiers as a person would type them."""
        lines = []
        for tier in tiers:
            amounts = {**tier["rates"], **{kind: tier[kind] for kind in ("input_micros", "output_micros")}}
            named = (f"{name} {typed(amounts[kind])}" for name, kind in TIER_NAMES.items() if kind in amounts)
            lines.append(f"{tier['above_tokens']}: {', '.join(named)}")
        return "\n".join(lines)


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
    tiers = TiersField(
        required=False,
        label="Long prompts",
        help_text="A line for each tier, with the tokens above which it counts, e.g. 200000: prompt 6, answer 22.50,"
        " cached 0.60, cache write 7.50.",
    )
    valid_from = forms.DateField(
        required=False,
        label="From",
        widget=forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d"),
        help_text="Empty: from today on.",
    )
    source = forms.CharField(required=False, max_length=200, help_text="Source of the price.")

    def __init__(self, *args: Any, shown: str = "", **kwargs: Any) -> None:
        """``shown``: the model whose price the form began with. Of another one, empty tiers and prices of kinds of
        tokens stay as they are in force: the person has not seen them."""
        super().__init__(*args, **kwargs)
        self.shown = shown
        for kind, name in KIND_NAMES.items():
            if kind != "cached_input_micros":
                self.fields[kind] = DollarsField(required=False, label=name.capitalize())

    @classmethod
    def of(cls, price: ModelPrice | None, model: str) -> PriceForm:
        if price is None:
            return cls(initial={"model": model})
        amounts = {name: typed(getattr(price, f"{name}_micros")) for name in AMOUNTS}
        rates = {kind: typed(amount_micros) for kind, amount_micros in price.rates.items()}
        tiers = TiersField.typed(price.tiers)
        return cls(initial={"model": price.model, "free": price.free, **amounts, **rates, "tiers": tiers})

    @property
    def kinds(self) -> list[forms.BoundField]:
        """Fields of the prices of other kinds of tokens."""
        return [self[kind] for kind in KIND_NAMES if kind in self.fields]

    @property
    def has_kinds(self) -> bool:
        """True if one of these fields has a value or an error: the page then shows them unfolded."""
        return any(field.value() or field.errors for field in self.kinds)

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
        rates = {kind: found.pop(kind) for kind in KIND_NAMES if kind in self.fields}
        found["rates"] = {kind: amount_micros for kind, amount_micros in rates.items() if amount_micros is not None}
        if found["free"]:
            return found | {"input_micros": 0, "output_micros": 0, "cached_input_micros": None, "per_call_micros": 0}
        if found["model"] != self.shown:
            found |= {name: found[name] or None for name in ("rates", "tiers")}
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
        label="Maximum dollars per minute",
        help_text="For all calls together. Further calls wait. Empty: not limited.",
    )

    @classmethod
    def initial_of(cls, row: BudgetSettings) -> dict[str, Any]:
        return super().initial_of(row) | {"most_per_minute": typed(row.most_per_minute_micros)}

    def values(self) -> dict[str, Any]:
        """The arguments of ``services.budget_settings_set``."""
        found = dict(self.cleaned_data)
        found["most_per_minute_micros"] = found.pop("most_per_minute")
        return found


class UsageFileForm(ServiceForm):
    """A provider's usage export, with a second one where it has costs and tokens in a file each."""

    marker = "zone"
    refusals = (DomainError,)
    file = forms.FileField(
        label="Usage export", help_text="CSV or JSON of at most 16 MB: by day and model, with a cost, tokens or both."
    )
    second = forms.FileField(
        required=False, label="Second file", help_text="Tokens of the same days, where costs have a file of their own."
    )
    zone = forms.CharField(
        max_length=60,
        initial="UTC",
        label="Time zone of the days",
        help_text="UTC, UTC-8, or a name such as Europe/Berlin. OpenAI, Anthropic and OpenRouter use UTC.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )

    def clean_zone(self) -> tzinfo:
        try:
            return zone_of(self.cleaned_data["zone"])
        except ValueError as error:
            raise ValidationError(str(error)) from error

    def values(self) -> dict[str, Any]:
        """The arguments of ``selectors.usage_compared``."""
        given = self.cleaned_data
        return {"files": [one.read() for one in (given["file"], given["second"]) if one], "zone": given["zone"]}


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
