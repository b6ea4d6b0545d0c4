"""Checks a document by OpenRPC 1.3 (https://spec.open-rpc.org), and an answer by its document."""

from __future__ import annotations

from functools import cache
from typing import Any

from jsonschema import Draft7Validator, FormatChecker

NAMED: dict[str, Any] = {"type": "string", "minLength": 1}
SCHEMA: dict[str, Any] = {"type": ["object", "boolean"]}
ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["code", "message"],
    "additionalProperties": False,
    "properties": {"code": {"type": "integer"}, "message": {"type": "string"}, "data": {}},
}
REFERENCE: dict[str, Any] = {
    "type": "object",
    "required": ["$ref"],
    "additionalProperties": False,
    "properties": {"$ref": {"type": "string", "pattern": "^#/components/"}},
}
DESCRIPTOR: dict[str, Any] = {
    "type": "object",
    "required": ["name", "schema"],
    "additionalProperties": False,
    "properties": {
        "name": NAMED,
        "summary": {"type": "string"},
        "description": {"type": "string"},
        "required": {"type": "boolean"},
        "schema": SCHEMA,
        "deprecated": {"type": "boolean"},
    },
}
METHOD: dict[str, Any] = {
    "type": "object",
    "required": ["name", "params", "result"],
    "additionalProperties": False,
    "properties": {
        "name": NAMED,
        "summary": {"type": "string"},
        "description": {"type": "string"},
        "paramStructure": {"enum": ["by-name", "by-position", "either"]},
        "params": {"type": "array", "items": {"oneOf": [DESCRIPTOR, REFERENCE]}},
        "result": {"oneOf": [DESCRIPTOR, REFERENCE]},
        "errors": {"type": "array", "items": {"oneOf": [ERROR, REFERENCE]}},
        "deprecated": {"type": "boolean"},
    },
}
DOCUMENT: dict[str, Any] = {
    "type": "object",
    "required": ["openrpc", "info", "methods"],
    "additionalProperties": False,
    "properties": {
        "openrpc": {"type": "string", "pattern": r"^1\.3\.\d+$"},
        "info": {
            "type": "object",
            "required": ["title", "version"],
            "additionalProperties": False,
            "properties": {"title": NAMED, "version": NAMED, "description": {"type": "string"}},
        },
        "methods": {"type": "array", "minItems": 1, "items": METHOD},
        "components": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "schemas": {
                    "type": "object",
                    "propertyNames": {"pattern": "^[a-zA-Z0-9._-]+$"},
                    "additionalProperties": SCHEMA,
                },
                "errors": {"type": "object", "additionalProperties": ERROR},
            },
        },
    },
}


def document_check(document: dict[str, Any]) -> None:
    """Raises what is wrong with an OpenRPC document: its form, its names, its schemas and its references."""
    Draft7Validator(DOCUMENT).validate(document)
    for method in document["methods"]:
        names = [param["name"] for param in method["params"]]
        assert len(set(names)) == len(names), method["name"]
        required = [param["required"] for param in method["params"]]
        assert required == sorted(required, reverse=True), method["name"]  # required ones first, as positions need it
        for part in (*method["params"], method["result"]):
            Draft7Validator.check_schema(part["schema"])
    names = [method["name"] for method in document["methods"]]
    assert len(set(names)) == len(names)
    for schema in document["components"]["schemas"].values():
        Draft7Validator.check_schema(schema)
    for reference in _references(document):
        if reference.startswith("#"):
            _, components, kind, name = reference.split("/")
            assert name in document[components][kind], reference


def result_check(document: dict[str, Any], name: str, result: Any) -> None:
    """Raises where the result is not what the document says of the method."""
    if name == "rpc.discover":
        return document_check(result)
    [method] = [one for one in document["methods"] if one["name"] == name]
    # In draft 7 nothing beside a $ref is read: the schema is wrapped, so that its references find the components.
    whole = {"allOf": [method["result"]["schema"]], "components": document["components"]}
    Draft7Validator(whole, format_checker=FormatChecker(["uuid", "date-time"])).validate(result)


@cache
def own_document() -> dict[str, Any]:
    """The document of this site's methods."""
    from agentcore_site import rpc
    from agentcore_site.rest import openrpc

    return openrpc.document(rpc.METHODS, "AgentCore", "1")


def _references(part: Any) -> list[str]:
    if isinstance(part, list):
        return [found for one in part for found in _references(one)]
    if not isinstance(part, dict):
        return []
    own = [part["$ref"]] if isinstance(part.get("$ref"), str) else []
    return own + [found for one in part.values() for found in _references(one)]
