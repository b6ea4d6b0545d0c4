"""Bodies of requests: JSON and files, never larger than the limit."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

from django.conf import settings
from rest_framework import serializers
from rest_framework.parsers import BaseParser, MultiPartParser
from rest_framework.request import Request

from agentcore_site.lib.errors import Invalid, TooLarge
from agentcore_site.lib.storable import parse_json, unstorable

MAY_BE_EMPTY: Final = frozenset({"search"})  # every text holds the empty one
NOT_TEXT: Final = "Must be a string."
# Fields of DRF that take a number for its text, or for a UUID or moment.
_OF_TEXT: Final = (serializers.CharField, serializers.UUIDField, serializers.DateTimeField, serializers.DateField)


class JsonParser(BaseParser):
    """JSON by a parser that refuses NaN, lone surrogates and endless nesting, up to the upload limit."""

    media_type = "application/json"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Mapping[str, Any] | None = None) -> Any:
        raw = stream.read(settings.DATA_UPLOAD_MAX_MEMORY_SIZE + 1)
        if len(raw) > settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
            raise too_large()
        return parse_json(raw)


class FileParser(MultiPartParser):
    """``multipart/form-data`` whose text fields can be stored."""

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Mapping[str, Any] | None = None) -> Any:
        parsed = super().parse(stream, media_type, parser_context)
        if reason := unstorable([[name, *values] for name, values in parsed.data.lists()]):
            raise Invalid(f"The form can't be stored: {reason}.")
        return parsed


def too_large() -> TooLarge:
    return TooLarge(f"The body is too large; at most {settings.DATA_UPLOAD_MAX_MEMORY_SIZE // 2**20} MB are taken.")


def check_length(request: Request) -> None:
    """Refuses what is too large before it is read.

    Raises:
        TooLarge: the request says that its body exceeds the limit.
    """
    declared = str(request.META.get("CONTENT_LENGTH") or "0")
    # Some room for the frame of a multipart form: the limit is the file's.
    if declared.isdigit() and int(declared) > settings.DATA_UPLOAD_MAX_MEMORY_SIZE + 2**20:
        raise too_large()


def check_query(request: Request) -> None:
    """Raises:
    Invalid: a query parameter holds what can't be stored, or is empty: ``?job=`` must not mean every job."""
    for name, values in request.query_params.lists():
        if "" in values and name not in MAY_BE_EMPTY:
            message = "Is empty. Give a value, or leave the parameter out."
            raise Invalid(f"{name[:60]}: {message}", fields={name[:60]: message})
        if reason := unstorable([name, *values]):
            raise Invalid(f"The query string can't be used: {reason}.", fields={"query": reason})


def refuse_unknown(given: Iterable[str], known: Iterable[str], noun: str) -> None:
    """A misspelt name must not be ignored in silence: ``?sucess=true`` would export everything.

    Raises:
        Invalid: a name is unknown; the message suggests the one that was probably meant.
    """
    names = sorted(known)
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(str(name), names, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            message = f"Unknown {noun} {str(name)[:60]!r}{hint}. Known: {', '.join(names) or 'none'}."
            raise Invalid(message, fields={str(name)[:60]: message})


class Strict(serializers.Serializer):  # type: ignore[type-arg]
    """A serializer for input: unknown keys are refused, with a suggestion, and so is a number where a text is due."""

    renamed: ClassVar[Mapping[str, str]] = {}  # former names of fields, which are taken until the next release

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, Mapping):
            data = self._by_present_names(data)
            known = [name for name, field in self.fields.items() if not field.read_only]
            refuse_unknown(data.keys(), known, "field")
            wrong = [name for name in known if name in data and not _texts_only(self.fields[name], data[name])]
            if wrong:
                raise serializers.ValidationError({name: [NOT_TEXT] for name in wrong})
        return super().to_internal_value(data)

    def _by_present_names(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        for former, name in self.renamed.items():
            if former in data and name in data:
                raise serializers.ValidationError({former: [f"Is the former name of {name}: give one of the two."]})
        return {self.renamed.get(name, name): value for name, value in data.items()} if self.renamed else data


def _texts_only(field: Any, value: Any) -> bool:
    """Whether a value has strings where the field is of text; other mistakes are the field's to find."""
    if isinstance(field, serializers.ListField) and isinstance(value, list):
        return all(_texts_only(field.child, one) for one in value)
    return not isinstance(field, _OF_TEXT) or not isinstance(value, int | float)


def parsed(serializer: type[Strict], data: Any) -> dict[str, Any]:
    """The cleaned values of a body or a query string.

    Raises:
        Invalid, ValidationError: see above.
    """
    checked = serializer(data=data)
    checked.is_valid(raise_exception=True)
    return dict(checked.validated_data)
