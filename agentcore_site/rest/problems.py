"""Errors over REST as RFC 9457 problem details, with a message that says what to do."""

from __future__ import annotations

import logging
import math
from typing import Any

from django.conf import settings
from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.http import Http404
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import set_rollback

from agentcore_site.lib.database import TROUBLE
from agentcore_site.lib.errors import DomainError

log = logging.getLogger(__name__)

UNEXPECTED = "Something went wrong here, and it was logged. Give your admin the request id."


def handler(error: Exception, context: dict[str, Any]) -> Response | None:
    """DRF's exception handler. What it does not know becomes a 500 that leaks nothing; the log has the rest.

    A database that is away is left to the middleware, which answers 503 everywhere.
    """
    if isinstance(error, TROUBLE):
        return None
    headers: dict[str, str] = {}
    if isinstance(error, DomainError):
        status, title, detail, fields = error.code, error.title, error.message, error.fields
        if wait := getattr(error, "retry_after", 0):
            headers["Retry-After"] = str(wait)
    elif isinstance(error, exceptions.ValidationError):
        fields = flat(error.detail)
        status, title = 400, "Invalid request"
        detail = " ".join(f"{name}: {message}" if name else message for name, message in fields.items())
    elif isinstance(error, exceptions.APIException):
        status, title, detail, fields = error.status_code, error.default_code, _words(error.detail), {}
        title = str(title).replace("_", " ").capitalize()
        if wait := getattr(error, "wait", None):
            headers["Retry-After"] = str(math.ceil(wait))
        if challenge := getattr(error, "auth_header", None):
            headers["WWW-Authenticate"] = challenge
    elif isinstance(error, Http404):
        status, title, detail, fields = 404, "Not found", "There is nothing here for you under this address.", {}
    elif isinstance(error, PermissionDenied):
        status, title, detail, fields = 403, "Not allowed", "You may not do this.", {}
    elif isinstance(error, RequestDataTooBig):
        limit = (settings.DATA_UPLOAD_MAX_MEMORY_SIZE or 0) // 2**20
        status, title, detail, fields = 413, "Too large", f"The body is too large; at most {limit} MB are taken.", {}
    elif isinstance(error, SuspiciousOperation):
        status, title, detail, fields = 400, "Invalid request", "The request can't be understood.", {}
    else:
        log.error("unexpected error", exc_info=error)
        status, title, detail, fields = 500, "Internal error", UNEXPECTED, {}
    set_rollback()
    return Response(
        body_of(status, title, detail, fields, getattr(context.get("request"), "request_id", "")),
        status=status,
        headers=headers,
        content_type="application/problem+json",
    )


def body_of(status: int, title: str, detail: str, fields: Any = None, request_id: str = "") -> dict[str, Any]:
    """The problem details themselves."""
    body: dict[str, Any] = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    if fields:
        body["errors"] = fields
    if request_id:
        body["request_id"] = request_id
    return body


def _words(detail: Any) -> str:
    """A detail for people; token errors carry theirs inside a dictionary of internals."""
    return str(detail.get("detail", "The request was refused.")) if isinstance(detail, dict) else str(detail)


def flat(detail: Any, prefix: str = "") -> dict[str, str]:
    """DRF's nested error details as field path → message."""
    if isinstance(detail, dict):
        parts = [flat(value, f"{prefix}.{key}" if prefix else str(key)) for key, value in detail.items()]
    elif isinstance(detail, list) and any(isinstance(item, dict | list) for item in detail):
        parts = [flat(value, f"{prefix}[{index}]") for index, value in enumerate(detail) if value]
    else:
        messages = detail if isinstance(detail, list) else [detail]
        name = "" if prefix in {"detail", "non_field_errors"} else prefix
        return {name: " ".join(str(message) for message in messages)}
    return {name: message for part in parts for name, message in part.items()}
