"""Additions to the OpenAPI document: authentication, and the shape of errors."""

from __future__ import annotations

from typing import Any, Final

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import get_doc
from drf_spectacular.utils import OpenApiParameter

from agentcore_site.rest.versions import IF_MATCH, SAFE

IDEMPOTENCY_KEY: Final = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description="The same key with the same body gives the same answer for 24 hours; with another body, a 409.",
)

IDEMPOTENCY_KEY_SECRET: Final = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description="The same key again is a 409 for 24 hours: nothing is made twice, and the secret is shown once.",
)

MATCH: Final = OpenApiParameter(
    IF_MATCH,
    str,
    OpenApiParameter.HEADER,
    description="The `ETag` of what you have read: with another version there now, nothing is done (412).",
)
ETAG: Final = OpenApiParameter(
    "ETag",
    str,
    OpenApiParameter.HEADER,
    description="The version of what people change of it, for `If-Match`.",
    response=["200", "201"],
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
    "412": "It was changed since you read it.",
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


class VersionedSchema(AutoSchema):
    """Describes what view sets declare once: their tag, their shape, and the versions of rows that people change
    (``ETag`` in answers, ``If-Match`` in requests)."""

    def get_tags(self) -> list[str]:
        tag = getattr(self.view, "tag", "")
        return [tag] if tag else []

    def get_request_serializer(self) -> Any:
        """No body, unless the operation of a view set names its shape."""
        return None if hasattr(self.view, "action") else super().get_request_serializer()

    def get_filter_backends(self) -> Any:
        return super().get_filter_backends() if getattr(self.view, "action", "") == "list" else []

    def get_summary(self) -> str | None:
        of_rows = {"list": "lists", "retrieve": "reads"}.get(getattr(self.view, "action", None) or "", "")
        summary, _ = getattr(self.view, of_rows, (None, None))
        return summary or getattr(self.view, "name", None)  # the ``name`` of an ``@action``

    def get_response_serializers(self) -> Any:
        listed = getattr(self.view, "action", "") == "list" and getattr(self.view, "list_class", None)
        return {204: None} if self.method == "DELETE" else listed or super().get_response_serializers()

    def get_description(self) -> str:  # type: ignore[override]
        """The operation's own words, or its view set's; not those of the base of all view sets, which are for us."""
        from agentcore_site.rest.views import ScopedViewSet

        found = str(super().get_description() or "")
        return "" if found == get_doc(ScopedViewSet) else found

    def get_override_parameters(self) -> list[Any]:
        found: list[Any] = [*super().get_override_parameters()]
        view: Any = self.view
        if not hasattr(view, "idempotent"):  # not one of ours
            return found
        if self.method == "POST" and view.action in view.shown_once:
            found.append(IDEMPOTENCY_KEY_SECRET)
        elif self.method == "POST" and view.action in view.idempotent:
            found.append(IDEMPOTENCY_KEY)
        if not view.versioned or view.action == "list":
            return found
        named = [part.strip("{}") for part in self.path.split("/") if part.startswith("{")]
        place = [name for name in named if name not in view.parts]
        one = len(place) == (1 if view.lookup_field else 0)
        if self.method not in SAFE and one and view.action != "create":
            found.append(MATCH)
        if view.action in ("retrieve", "create", "partial_update") or (self.method == "POST" and view.detail):
            found.append(ETAG)
        return found


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
            if any(one.get("name") == IF_MATCH for one in operation.get("parameters", ())):
                own.append("412")
            for status in (*(ALWAYS if method == "get" else ON_WRITES), *own):
                if "content" not in answers.get(status, {}):
                    answers[status] = {"description": MEANINGS[status], "content": content}
    return result
