"""Additions to the OpenAPI document: authentication, and the shape of errors."""

from __future__ import annotations

from typing import Any, Final

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.utils import OpenApiParameter

IDEMPOTENCY_KEY: Final = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description="The same key with the same body gives the same answer for 24 hours; with another body, a 409.",
)

PROBLEM: Final[dict[str, Any]] = {
    "type": "object",
    "description": "RFC 9457 problem details.",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "default": "about:blank"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What is wrong and what to do about it."},
        "errors": {"type": "object", "additionalProperties": {"type": "string"}, "description": "By field."},
        "request_id": {"type": "string"},
    },
    "example": {
        "type": "about:blank",
        "title": "Conflict",
        "status": 409,
        "detail": "This agent already has an active training job. Wait until it ends, or cancel it.",
        "request_id": "9f1c2d3e4b5a6978",
    },
}
MEANINGS: Final = {
    "400": "The request can't be understood or breaks a rule; `errors` says where.",
    "401": "No key, token or session, or one that is not valid.",
    "403": "Seen, but your role or your key does not allow it.",
    "404": "Not there, or not yours.",
    "409": "Another request was first, or the state does not allow it.",
    "413": "More than the limit.",
    "429": "Too many requests or active jobs; see `Retry-After`.",
    "507": "It does not fit the budget.",
}
ALWAYS: Final = ("400", "401", "403", "404", "429")
ON_WRITES: Final = (*ALWAYS, "409", "413", "507")


class ApiKeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "agentcore_site.tenancy.authentication.ApiKeyAuthentication"
    name = "apiKey"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        return {"type": "http", "scheme": "bearer", "description": "`Authorization: Bearer ac_…`"}


class JwtScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "agentcore_site.tenancy.authentication.JwtAuthentication"
    name = "jwt"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        return {"type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": "From `/api/v1/token`."}


class SessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "agentcore_site.tenancy.authentication.ConsoleSessionAuthentication"
    name = "session"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        return {"type": "apiKey", "in": "cookie", "name": "sessionid", "description": "The console's session."}


def add_problems(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """A hook of drf-spectacular: each operation names the errors that it can answer with."""
    schemas = result.setdefault("components", {}).setdefault("schemas", {})
    schemas["Problem"] = PROBLEM
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for operations in result.get("paths", {}).values():
        for method, operation in operations.items():
            if not isinstance(operation, dict) or "responses" not in operation:
                continue
            answers = operation["responses"]
            own = [status for status in answers if status in MEANINGS]  # named by the operation, which gives no body
            for status in (*(ALWAYS if method == "get" else ON_WRITES), *own):
                if "content" not in answers.get(status, {}):
                    answers[status] = {"description": MEANINGS[status], "content": content}
    return result
