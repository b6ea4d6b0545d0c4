"""Fields and helpers that all forms of the console share."""

from __future__ import annotations

import json
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from agentcore_site.lib.errors import DomainError


class OptionsField(forms.CharField):
    """A JSON object as text; empty is {}."""

    widget = forms.Textarea(attrs={"rows": 5, "spellcheck": "false", "class": "code", "placeholder": "{}"})

    def clean(self, value: Any) -> dict[str, Any]:
        text = (value or "").strip()
        if not text:
            return {}
        try:
            parsed = json.loads(text)
        except ValueError as error:
            raise ValidationError(f"This is not JSON: {error}.") from error
        if not isinstance(parsed, dict):
            raise ValidationError('Options are an object, e.g. {"families": ["gcd"]}.')
        return parsed


class SealedTextarea(forms.Textarea):
    """Never shows what was typed, like a field for a password."""

    def format_value(self, value: Any) -> str:
        return ""


class SealedField(forms.CharField):
    """A secret: typed unseen, never shown again, and kept as it is stored where it is left empty."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs["widget"] = forms.PasswordInput(attrs={"autocomplete": "off"})
        super().__init__(required=False, **kwargs)


class NamesField(forms.MultipleChoiceField):
    """Names, of which the service knows which there are: an agent may hold some that are not offered any more."""

    def valid_value(self, value: str) -> bool:
        return True


def put_errors(form: forms.Form, error: DomainError) -> None:
    """Puts a service's message where it belongs: at its field, else above the form."""
    known = {name: message for name, message in error.fields.items() if name in form.fields}
    for name, message in known.items():
        form.add_error(name, message)
    if not known:
        form.add_error(None, error.message)
