"""JSON Schema (draft 7) of what serializers write, for descriptions other than OpenAPI's.

OpenAPI 3.0 has a dialect of its own, in which null is no type; clients of JSON-RPC validate by JSON Schema itself.
"""

from __future__ import annotations

from typing import Any, Final

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ComponentRegistry
from rest_framework import serializers
from rest_framework.generics import GenericAPIView

OPENAPI_ONLY: Final = {"nullable", "readOnly", "writeOnly"}
NULL: Final = {"type": "null"}


class ResultSchemas(AutoSchema):
    """Collects the schemas of serializers and of those in them. They are closed: a field that a serializer does not
    name is not part of what it writes."""

    def __init__(self) -> None:
        super().__init__()
        self.registry = ComponentRegistry()
        self.view: Any = GenericAPIView(request=None, format_kwarg=None)

    def reference(self, serializer: type[serializers.Serializer[Any]]) -> dict[str, Any]:
        """A ``$ref`` to the serializer's schema, which ``components`` has from now on."""
        return dict(self.resolve_serializer(serializer, "response").ref)

    def components(self) -> dict[str, Any]:
        """Schemas by name, as they are under ``#/components/schemas``."""
        found: dict[str, Any] = self.registry.build({}).get("schemas", {})
        return {name: _closed(json_schema(schema)) for name, schema in found.items()}


def json_schema(schema: Any) -> Any:
    """An OpenAPI 3.0 schema as JSON Schema."""
    if isinstance(schema, list):
        return [json_schema(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {name: json_schema(part) for name, part in schema.items() if name not in OPENAPI_ONLY}
    return _with_null(plain) if schema.get("nullable") is True else plain


def _with_null(plain: dict[str, Any]) -> dict[str, Any]:
    if "type" not in plain and "$ref" not in plain and not {"allOf", "anyOf", "oneOf"} & set(plain):
        return plain  # any value at all
    about = {name: plain.pop(name) for name in ("title", "description") if name in plain}
    return {"anyOf": [plain, NULL]} | about


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    return schema | {"additionalProperties": False} if "properties" in schema else schema
