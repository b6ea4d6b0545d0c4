"""Fields and helpers that all forms of the console share."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, ClassVar, Self, TypeVar

from django import forms
from django.core.exceptions import ValidationError

from agentcore_site.lib.errors import Conflict, DomainError, Invalid

Done = TypeVar("Done")


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

    def prepare_value(self, value: Any) -> Any:
        return (json.dumps(value, indent=2) if value else "") if isinstance(value, dict) else value


class SealedTextarea(forms.Textarea):
    """Never shows the typed text, like a field for a password."""

    def format_value(self, value: Any) -> str:
        return ""


class SealedField(forms.CharField):
    """A secret: typed unseen, never shown again, and unchanged if it is left empty."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs["widget"] = forms.PasswordInput(attrs={"autocomplete": "off"})
        super().__init__(required=False, **kwargs)


class NamesField(forms.MultipleChoiceField):
    """Names that the service validates: an agent may hold names that are not offered any more."""

    def valid_value(self, value: str) -> bool:
        return True


class ServiceForm(forms.Form):
    """A form whose service may refuse: the typed values stay, with the message at its field, else above the form."""

    marker: ClassVar[str] = ""  # a field that every real form sends: a POST without it is not a filled-in form
    refusals: ClassVar[tuple[type[DomainError], ...]] = (Invalid, Conflict)  # any other error is a page of its own
    code = 400  # status of a refused form, by the form itself or by its service

    def values(self) -> dict[str, Any]:
        """The arguments of its service."""
        return self.cleaned_data

    def applied(self, service: Callable[..., Done], *args: Any, **extra: Any) -> Done | None:
        """The service's result for these values; None if nothing was sent, or the service refuses."""
        if not self.is_valid():
            return None
        try:
            return service(*args, **extra, **self.values())
        except self.refusals as error:
            self.refuse(error)
            return None

    def refuse(self, error: DomainError) -> None:
        self.code = error.code
        known = {name: message for name, message in error.fields.items() if name in self.fields}
        for name, message in known.items():
            self.add_error(name, message)
        if not known:
            self.add_error(None, error.message)

    @property
    def status(self) -> int:
        """HTTP status of the page that shows the form."""
        return self.code if self.is_bound and self.errors else 200

    def clean(self) -> dict[str, Any]:
        found = super().clean() or {}
        if self.marker and self.marker not in self.data:
            raise ValidationError("The form was empty, so nothing was changed. Fill in the form.")
        return found


class RowForm(ServiceForm):
    """The form of a row, which starts with the row's values."""

    row_fields: ClassVar[tuple[str, ...]]  # fields that hold the row's attribute of their name

    @classmethod
    def of(cls, row: Any, data: Any = None, **extra: Any) -> Self:
        return cls(data, initial=cls.initial_of(row), **extra)

    @classmethod
    def initial_of(cls, row: Any) -> dict[str, Any]:
        return {name: getattr(row, name) for name in cls.row_fields}
