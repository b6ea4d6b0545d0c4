"""Filters of lists, which refuse what they don't know instead of ignoring it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django import forms
from django.db.models import QuerySet
from django_filters import rest_framework as filters
from django_filters.fields import IsoDateTimeField

from agentcore_site.lib.errors import Invalid
from agentcore_site.lib.storable import in_utc
from agentcore_site.rest.parsing import refuse_unknown

PAGING = ("cursor", "limit", "ordering")
INTEGER_MAX = 2**31 - 1
WORDS = {"true": True, "1": True, "false": False, "0": False, "": None}


class StrictFilters(filters.DjangoFilterBackend):
    """The view's filters; any other query parameter is a 400 with a suggestion."""

    def filter_queryset(self, request: Any, queryset: Any, view: Any) -> Any:
        filterset = self.get_filterset_class(view, queryset)
        own = view.known_query.get(view.action or "", ())
        known = [*PAGING, *(filterset.base_filters if filterset else ()), *own]
        refuse_unknown(request.query_params, known, "query parameter")
        return super().filter_queryset(request, queryset, view)


class _FlagField(forms.NullBooleanField):
    widget = forms.TextInput

    def to_python(self, value: Any) -> bool | None:  # type: ignore[override]
        word = str(value if value is not None else "").strip().lower()
        if word not in WORDS:
            raise forms.ValidationError("Must be true or false.")
        return WORDS[word]


class Flag(filters.BooleanFilter):
    """true or false; anything else is refused (the plain one takes it for nothing asked)."""

    field_class = _FlagField

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, widget=forms.TextInput, **kwargs)


class _WholeField(forms.IntegerField):
    def __init__(self, **kwargs: Any) -> None:
        kwargs.pop("decimal_places", None)
        super().__init__(min_value=0, max_value=INTEGER_MAX, **kwargs)


class Whole(filters.NumberFilter):
    """A whole number that an integer column can hold."""

    field_class = _WholeField

    def get_max_validator(self) -> None:
        return None


class _MomentField(IsoDateTimeField):
    def to_python(self, value: Any) -> datetime | None:  # type: ignore[override]
        moment = super().to_python(value)
        try:
            return None if moment is None else in_utc(moment)
        except ValueError as error:
            raise forms.ValidationError(f"Must be a moment that can be stored: {error}.") from error


class Moment(filters.IsoDateTimeFilter):
    """A moment with any offset that ISO 8601 has, as the database knows it."""

    field_class = _MomentField


class OnPage(filters.FilterSet):
    """Filters of a REST list that a page has as well."""

    @classmethod
    def on_page(cls, rows: QuerySet[Any], values: Mapping[str, str], **given: Any) -> QuerySet[Any]:
        """The rows that pass, as a page filters: a value that is wrong is left out."""
        found = cls(values, rows, **given)
        found.is_valid()
        for name, value in found.form.cleaned_data.items():
            rows = found.filters[name].filter(rows, value)
        return rows

    @classmethod
    def passing(cls, rows: QuerySet[Any], values: Mapping[str, Any]) -> QuerySet[Any]:
        """The rows that pass, as an export filters.

        Raises:
            Invalid: a value is of the wrong kind.
        """
        found = cls(values, rows)
        if not found.is_valid():
            fields = {name: " ".join(map(str, messages)) for name, messages in found.errors.items()}
            raise Invalid(" ".join(f"{name}: {message}" for name, message in fields.items()), fields=fields)
        return found.filter_queryset(rows)
