"""``rpc.discover``: the methods of a table as an OpenRPC 1.3 document (https://spec.open-rpc.org)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from agentcore_site.rest.json_schema import ResultSchemas
from agentcore_site.rest.jsonrpc import (
    INTERNAL,
    INVALID_PARAMS,
    INVALID_REQUEST,
    NO_METHOD,
    PARSE_ERROR,
    Call,
    Method,
    Params,
    Table,
)

OPENRPC: Final = "1.3.2"
DISCOVER: Final = "rpc.discover"
# As the specification has it ("Service Discovery Method").
DOCUMENT: Final = {"$ref": "https://raw.githubusercontent.com/open-rpc/meta-schema/master/schema.json"}
ERRORS: Final = {
    PARSE_ERROR: "The body is no JSON.",
    INVALID_REQUEST: "This is no request.",
    NO_METHOD: "There is no such method.",
    INVALID_PARAMS: "A parameter is missing, unknown or of the wrong type.",
    INTERNAL: "Something went wrong here, and it was logged.",
    400: "A value breaks a rule; data.fields says which.",
    403: "Your role or your key does not allow it.",
    404: "Not there, or not yours.",
    409: "The state does not allow it.",
    413: "More than the limit.",
    429: "Too many requests or active jobs.",
    507: "It does not fit the budget.",
}


class DiscoverParams(Params):
    """None."""


def methods(table: Table, title: str, version: str) -> Table:
    """The method that describes ``table`` and itself, by its name."""
    whole: dict[str, Method] = dict(table)

    def discover(call: Call, given: DiscoverParams) -> dict[str, Any]:
        return document(whole, title, version)

    whole[DISCOVER] = Method(DiscoverParams, None, discover, "This document: all methods, as OpenRPC.", DOCUMENT)
    return {DISCOVER: whole[DISCOVER]}


def document(table: Table, title: str, version: str) -> dict[str, Any]:
    """The OpenRPC document of a table of methods."""
    results = ResultSchemas()
    params: dict[str, Any] = {}
    described = [_method(name, method, params, results) for name, method in table.items()]
    errors = {_name(code): {"code": code, "message": message} for code, message in ERRORS.items()}
    return {
        "openrpc": OPENRPC,
        "info": {"title": title, "version": version},
        "methods": described,
        "components": {"schemas": params | results.components(), "errors": errors},
    }


def _method(name: str, method: Method, schemas: dict[str, Any], results: ResultSchemas) -> dict[str, Any]:
    schema = method.params.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= schema.get("$defs", {})
    required = schema.get("required", [])
    return {
        "name": name,
        "summary": method.summary,
        "paramStructure": "either",
        "params": [
            {"name": param, "required": param in required, "schema": part}
            for param, part in schema.get("properties", {}).items()
        ],
        "result": {"name": "result", "schema": _result(method, results)},
        "errors": [{"$ref": f"#/components/errors/{_name(code)}"} for code in ERRORS],
    }


def _result(method: Method, results: ResultSchemas) -> Mapping[str, Any]:
    return method.result if isinstance(method.result, Mapping) else results.reference(method.result)


def _name(code: int) -> str:
    return f"error{code}".replace("-", "_")
